"""What happens to every request before a resource sees it: media types, contexts in paths, who may send
it."""

from urllib.parse import parse_qsl, quote, unquote, urlencode

from starlette.types import ASGIApp, Receive, Scope, Send

from millstream.http.negotiation import MediaTypes
from millstream.registry import contexts
from millstream.registry.api.responses import MEDIA_TYPE

_ALIASES = frozenset({"application/vnd.schemaregistry+json", "application/json"})
_WRITES = _ALIASES | {MEDIA_TYPE}
_MEDIA_TYPES = MediaTypes(MEDIA_TYPE, _WRITES | {"application/octet-stream"}, _WRITES, _ALIASES)


def media_types(path: str) -> MediaTypes:
    return _MEDIA_TYPES


def reads_only(method: str, path: str) -> bool:
    """Whether a user who may only read may send this request: GET, looking a schema up, checking
    compatibility."""
    if method in ("GET", "HEAD", "OPTIONS"):
        return True
    if method != "POST":
        return False
    path = path.rstrip("/")
    resource = "/" + path.split("/", 3)[-1] if path.startswith("/contexts/") else path
    if resource.startswith(("/dek-registry/", "/associations")):
        return resource == "/associations:batchGet"
    return "/compatibility/" in path or (not path.endswith("/versions") and not path.endswith("/tags"))


class ContextPaths:
    """/contexts/c/subjects/s means the subject :.c:s, and a slash at the end means nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if scope["path"].endswith("/"):
                without_trailing_slash(scope)
            if scope["path"].startswith("/contexts/"):
                into_context(scope)
        await self._app(scope, receive, send)


def without_trailing_slash(scope: Scope) -> None:
    """A slash that is part of a subject is encoded, and stays."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    kept = raw.rstrip(b"/")
    if kept:
        scope["path"] = scope["path"][: len(scope["path"]) - (len(raw) - len(kept))]
        scope["raw_path"] = kept


def into_context(scope: Scope) -> None:
    """Move the context from the path into the subject, for every resource. The scope itself is changed, so
    that the metrics, further out, learn the route."""
    raw = scope.get("raw_path") or quote(scope["path"]).encode()
    _, _, context, *rest = raw.decode("ascii", "replace").split("/")
    prefix = contexts.Subject(contexts.with_dot(unquote(context)), "").prefix
    if not rest or rest == [""]:
        return
    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    if rest[0] in ("config", "mode"):
        rest[1:] = [_prefixed(prefix, "/".join(rest[1:]))]
    elif (index := _subject_index(rest)) is not None:
        rest[index] = _prefixed(prefix, rest[index])
    elif rest[:2] in (["schemas", "ids"], ["schemas", "guids"]):
        query = _with_prefix(query, "subject", prefix)
    elif rest[0] in ("subjects", "schemas"):
        query = _with_prefix(query, "subjectPrefix", prefix)
    elif rest[0].startswith("associations"):
        query = [*((name, value) for name, value in query if name != "context"), ("context", prefix)]
    path = "/" + "/".join(rest)
    scope["path"] = unquote(path)
    scope["raw_path"] = path.encode("ascii", "replace")
    scope["query_string"] = urlencode(query).encode("ascii")


def _subject_index(segments: list[str]) -> int | None:
    """Where the subject is in a path, if it has one."""
    for index, segment in enumerate(segments[:-1]):
        if segment in ("subjects", "deks"):
            return index + 1
    return None


def _prefixed(prefix: str, encoded: str) -> str:
    text = unquote(encoded)
    return quote(text if text.startswith(":.") else prefix + text, safe="")


def _with_prefix(query: list[tuple[str, str]], name: str, prefix: str) -> list[tuple[str, str]]:
    given = next((value for key, value in query if key == name), "")
    value = given if given.startswith(":.") else prefix + given
    return [*((key, item) for key, item in query if key != name), (name, value)]
