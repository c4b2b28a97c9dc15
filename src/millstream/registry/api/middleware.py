"""What happens to every request before a resource sees it: contexts in paths, media types, sizes."""

from urllib.parse import parse_qsl, quote, unquote, urlencode

from starlette.types import ASGIApp, Receive, Scope, Send

from millstream.http.bodies import limited, refuse, with_type
from millstream.registry import contexts
from millstream.registry.api.responses import MEDIA_TYPE

READS = frozenset(
    {
        "application/vnd.schemaregistry.v1+json",
        "application/vnd.schemaregistry+json",
        "application/json",
        "application/octet-stream",
    }
)
WRITES = frozenset(
    {"application/vnd.schemaregistry.v1+json", "application/vnd.schemaregistry+json", "application/json"}
)
PAGES = ("/docs", "/redoc", "/openapi.json")  # these have media types of their own


class Around:
    def __init__(self, app: ASGIApp, *, largest_body: int) -> None:
        self._app = app
        self._largest = largest_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(PAGES):
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        sent_type = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
        if sent_type and sent_type not in READS and scope["method"] in ("POST", "PUT"):
            await refuse(send, 415, "HTTP 415 Unsupported Media Type", MEDIA_TYPE)
            return
        wanted = choose_type(headers.get(b"accept", b"").decode("latin-1"))
        if wanted is None:
            await refuse(send, 406, "HTTP 406 Not Acceptable", MEDIA_TYPE)
            return
        if scope["path"].startswith("/contexts/"):
            into_context(scope)
        if wanted != MEDIA_TYPE:
            send = with_type(send, wanted)
        await limited(self._app, scope, receive, send, self._largest, MEDIA_TYPE)


def choose_type(accept: str) -> str | None:
    """The media type of the answer, None if the client takes none that we have."""
    if not accept or accept == "*/*":
        return MEDIA_TYPE
    best, weight = None, 0.0
    for item in accept.split(","):
        name, _, parameters = item.partition(";")
        name = name.strip().lower()
        quality = 1.0
        for parameter in parameters.split(";"):
            key, _, value = parameter.strip().partition("=")
            if key == "q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = 0.0
        if name in ("*/*", "application/*"):
            name = MEDIA_TYPE
        if name in WRITES and quality > weight:
            best, weight = name, quality
    return best


def into_context(scope: Scope) -> None:
    """/contexts/c/subjects/s means the subject :.c:s, and so on for all resources. The scope itself is changed, so that
    whoever passed it in learns its route."""
    raw = scope.get("raw_path") or quote(scope["path"]).encode()
    _, _, context, *rest = raw.decode("ascii", "replace").split("/")
    prefix = contexts.Subject(contexts.with_dot(unquote(context)), "").prefix
    if not rest or rest == [""]:
        return
    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    if rest[0] in ("config", "mode"):
        rest[1:] = [_prefixed(prefix, "/".join(rest[1:]))]
    elif rest[0] == "subjects" and len(rest) > 1:
        rest[1] = _prefixed(prefix, rest[1])
    elif rest[0] == "compatibility" and len(rest) > 2:
        rest[2] = _prefixed(prefix, rest[2])
    elif rest[:2] in (["schemas", "ids"], ["schemas", "guids"]):
        query = _with_prefix(query, "subject", prefix)
    elif rest[0] in ("subjects", "schemas"):
        query = _with_prefix(query, "subjectPrefix", prefix)
    path = "/" + "/".join(rest)
    scope["path"] = unquote(path)
    scope["raw_path"] = path.encode("ascii", "replace")
    scope["query_string"] = urlencode(query).encode("ascii")


def _prefixed(prefix: str, encoded: str) -> str:
    text = unquote(encoded)
    return quote(text if text.startswith(":.") else prefix + text, safe="")


def _with_prefix(query: list[tuple[str, str]], name: str, prefix: str) -> list[tuple[str, str]]:
    given = next((value for key, value in query if key == name), "")
    value = given if given.startswith(":.") else prefix + given
    return [*((key, item) for key, item in query if key != name), (name, value)]
