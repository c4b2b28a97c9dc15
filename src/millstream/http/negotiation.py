"""Content-Type and Accept, checked before a resource sees the request (RFC 9110, sections 8.3 and 12.5.1).

A service says which media types each of its APIs reads and writes; the middleware answers 415 and 406, and
relabels a response where the client prefers another name for the same JSON.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from millstream.http.bodies import limited, refuse, with_content_type

WILDCARDS = frozenset({"*/*", "application/*"})
# FastAPI's own pages have media types of their own.
DOCUMENTATION = ("/docs", "/redoc", "/openapi.json")
_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


@dataclass(frozen=True, slots=True)
class MediaTypes:
    """What one API reads and writes.

    default    the type of its responses
    reads      the types of request bodies; any other is 415
    writes     the types that a client may ask for; 406 if it accepts none of them
    aliases    those of `writes` that are only another name for `default`: the response is relabelled
    unlimited  the body is a stream, whose parts the resource checks itself
    """

    default: str
    reads: frozenset[str]
    writes: frozenset[str]
    aliases: frozenset[str] = frozenset()
    unlimited: bool = False


class ContentNegotiation:
    """Around the application. `media_types` finds those of the API that a path belongs to."""

    def __init__(self, app: ASGIApp, media_types: Callable[[str], MediaTypes], *, max_bytes: int) -> None:
        self._app = app
        self._media_types = media_types
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(DOCUMENTATION):
            await self._app(scope, receive, send)
            return
        types = self._media_types(scope["path"])
        content_type, accept, has_body = _headers(scope)
        # A body without a type is refused as well: any web page can have a browser send one.
        if (
            (content_type or has_body)
            and content_type not in types.reads
            and scope["method"] in _METHODS_WITH_BODY
        ):
            await refuse(send, 415, "HTTP 415 Unsupported Media Type", types.default)
            return
        chosen = preferred(accept, types.writes, types.default)
        if chosen is None:
            await refuse(send, 406, "HTTP 406 Not Acceptable", types.default)
            return
        if chosen in types.aliases:
            send = with_content_type(send, chosen)
        if types.unlimited:
            await self._app(scope, receive, send)
        else:
            await limited(self._app, scope, receive, send, self._max_bytes, types.default)


def preferred(accept: str, offered: Container[str], default: str) -> str | None:
    """The offered type that the client likes best; `default` where it takes any, None where it takes none of
    them."""
    if not accept:
        return default
    for media_type in parse_accept(accept):
        if media_type in WILDCARDS:
            return default
        if media_type in offered:
            return media_type
    return None


def parse_accept(accept: str) -> list[str]:
    """The media types of an Accept header, best first; those of equal quality keep their order."""
    found: list[tuple[float, str]] = []
    for item in accept.split(","):
        name, _, parameters = item.partition(";")
        quality = 1.0
        for parameter in parameters.split(";"):
            key, _, value = parameter.strip().partition("=")
            if key == "q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = 0.0
        if name.strip() and quality > 0:
            found.append((quality, name.strip().lower()))
    return [name for _, name in sorted(found, key=lambda entry: -entry[0])]


def _headers(scope: Scope) -> tuple[str, str, bool]:
    """Content-Type without its parameters, Accept, which may come in several lines, and whether there is a
    body."""
    content_type = accept = b""
    has_body = False
    for name, value in scope["headers"]:
        if name == b"content-type":
            content_type = value
        elif name == b"accept":
            accept = accept + b"," + value if accept else value
        elif name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0"):
            has_body = True
    media_type = content_type.decode("latin-1").partition(";")[0].strip().lower()
    return media_type, accept.decode("latin-1"), has_body
