"""Functions of URLs: RFC 2396 as java.net.URI reads it. Path, query and fragment come decoded."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import quote_plus, unquote, unquote_plus

from millstream.sql.errors import EvaluationError
from millstream.sql.functions.table import Function, overload, scalar

_URL = "URL"
_PARTS = re.compile(
    r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#([^#]*))?", re.DOTALL
)
_SERVER = re.compile(r"(?:[^@]*@)?(\[[^\]]*\]|[^:\[\]]*)(?::(\d*))?")
# The last label of a name begins with a letter; an address is four numbers.
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = re.compile(
    rf"\[.*\]|\d{{1,3}}(?:\.\d{{1,3}}){{3}}|(?:{_LABEL}\.)*[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.?"
)
_ILLEGAL = re.compile(r'[\x00-\x20<>"{}|\\^`\x7f]|%(?![0-9A-Fa-f]{2})')


def _split(url: str) -> tuple[str | None, str | None, str | None, str | None, str | None]:
    """Scheme, authority, path, query, fragment. What is opaque (`mailto:...`) has no path."""
    found = _PARTS.fullmatch(url)
    if found is None or _ILLEGAL.search(url):
        raise EvaluationError(f"URL input has invalid syntax: {url}")
    scheme, authority, path, query, fragment = found.groups()
    if scheme and authority is None and not path.startswith("/"):
        if not path:
            raise EvaluationError(f"URL input has invalid syntax: {url}")
        return scheme, None, None, None, fragment
    if scheme is None and authority is None and ":" in path.split("/", 1)[0]:
        raise EvaluationError(f"URL input has invalid syntax: {url}")
    return scheme, authority, path, query, fragment


def _decoded(text: str | None) -> str | None:
    return None if text is None else unquote(text, errors="replace")


def _server(url: str) -> tuple[str | None, int | None]:
    authority = _split(url)[1]
    found = _SERVER.fullmatch(authority) if authority else None
    if found is None or not _HOST.fullmatch(found[1]):
        return None, None
    return found[1], int(found[2]) if found[2] else None


def _part(index: int) -> Callable[[str], str | None]:
    return lambda url: _decoded(_split(url)[index])


def _parameter(url: str | None, name: str | None) -> str | None:
    query = None if url is None else _decoded(_split(url)[3])
    for pair in [] if query is None else query.split("&"):
        key, _, value = pair.partition("=")
        if key == name:
            return value
    return None


def _decode(text: str) -> str:
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise EvaluationError("URLDecoder: Illegal hex characters in escape (%) pattern")
    return unquote_plus(text, errors="replace")


def _encode(text: str) -> str:
    return quote_plus(text, safe="*").replace("~", "%7E")


ROWS: list[Function] = [
    scalar(
        "url_decode_param",
        _URL,
        "A form parameter decoded.",
        overload("(VARCHAR input) -> VARCHAR", _decode),
    ),
    scalar(
        "url_encode_param",
        _URL,
        "A string encoded as a form parameter.",
        overload("(VARCHAR input) -> VARCHAR", _encode),
    ),
    scalar(
        "url_extract_fragment",
        _URL,
        "What follows the # of a URL.",
        overload("(VARCHAR input) -> VARCHAR", _part(4)),
    ),
    scalar(
        "url_extract_host",
        _URL,
        "The host of a URL.",
        overload("(VARCHAR input) -> VARCHAR", lambda url: _server(url)[0]),
    ),
    scalar(
        "url_extract_parameter",
        _URL,
        "One parameter of the query of a URL.",
        overload("(VARCHAR input, VARCHAR paramToFind) -> VARCHAR", _parameter, own_nulls=True),
    ),
    scalar("url_extract_path", _URL, "The path of a URL.", overload("(VARCHAR input) -> VARCHAR", _part(2))),
    scalar(
        "url_extract_port",
        _URL,
        "The port of a URL; null if it names none.",
        overload("(VARCHAR input) -> INT", lambda url: _server(url)[1]),
    ),
    scalar(
        "url_extract_protocol",
        _URL,
        "The scheme of a URL.",
        overload("(VARCHAR input) -> VARCHAR", lambda url: _split(url)[0]),
    ),
    scalar(
        "url_extract_query",
        _URL,
        "What follows the ? of a URL.",
        overload("(VARCHAR input) -> VARCHAR", _part(3)),
    ),
]
