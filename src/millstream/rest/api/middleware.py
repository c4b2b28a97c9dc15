"""What happens to every request before a resource sees it: media types and sizes."""

from starlette.types import ASGIApp, Receive, Scope, Send

from millstream.http.bodies import limited, refuse, with_type
from millstream.rest.api.responses import EMBEDDED, JSON, V2

PAGES = ("/docs", "/redoc", "/openapi.json")  # these have media types of their own
READS_V2 = frozenset({V2, JSON, "application/octet-stream", *EMBEDDED})
READS_V3 = frozenset({JSON, "application/octet-stream"})
ANY = frozenset({"*/*", "application/*"})
WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


class Around:
    def __init__(self, app: ASGIApp, *, largest_body: int, v2: bool, v3: bool) -> None:
        self._app = app
        self._largest = largest_body
        self._v2 = v2
        self._v3 = v3

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(PAGES):
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        is_v3 = path.startswith("/v3/") or path == "/v3"
        own = JSON if is_v3 else V2
        if not (self._v3 if is_v3 else self._v2):
            await refuse(send, 404, "HTTP 404 Not Found", own)
            return
        sent = accept = b""
        for name, value in scope["headers"]:
            if name == b"content-type":
                sent = value
            elif name == b"accept":
                accept = accept + b"," + value if accept else value
        if sent and scope["method"] in WITH_BODY:
            kind = sent.decode("latin-1").partition(";")[0].strip().lower()
            if kind not in (READS_V3 if is_v3 else READS_V2):
                await refuse(send, 415, "HTTP 415 Unsupported Media Type", own)
                return
        if accept:
            wanted = ranked(accept.decode("latin-1"))
            types = (JSON,) if is_v3 else (V2, JSON, *EMBEDDED)
            chosen = next((one for one in wanted if one in ANY or one in types), None)
            if chosen is None:
                await refuse(send, 406, "HTTP 406 Not Acceptable", own)
                return
            if chosen == JSON and not is_v3 and not path.endswith("/records"):
                send = with_type(send, JSON)
        if is_v3 and path.endswith("/records"):  # a stream: its records are counted one by one
            await self._app(scope, receive, send)
            return
        await limited(self._app, scope, receive, send, self._largest, own)


def ranked(accept: str) -> list[str]:
    """The media types that a client takes, those first that it likes best."""
    found: list[tuple[float, int, str]] = []
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
        if quality > 0:
            found.append((-quality, len(found), name.strip().lower()))
    return [name for _, _, name in sorted(found)]
