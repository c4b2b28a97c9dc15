"""JSON bodies in and out, and the addresses in answers."""

import json
import re
from typing import Any
from urllib.parse import quote

import orjson
import re2
from fastapi import Request, Response

from millstream.rest import errors
from millstream.rest.clients import RestClients

V2 = "application/vnd.kafka.v2+json"
JSON = "application/json"
EMBEDDED = {
    "application/vnd.kafka.binary.v2+json": "BINARY",
    "application/vnd.kafka.json.v2+json": "JSON",
    "application/vnd.kafka.avro.v2+json": "AVRO",
    "application/vnd.kafka.jsonschema.v2+json": "JSONSCHEMA",
    "application/vnd.kafka.protobuf.v2+json": "PROTOBUF",
}
# orjson makes floats of numbers that 64 bits cannot hold. Nothing that could be one goes through it.
_LONG_NUMBER = re2.compile(rb"[0-9]{19}")
_HOST = re.compile(r"[A-Za-z0-9._~\-\[\]:]{1,255}")
CLIENTS = "millstream.rest.clients"  # in the scope of a request
DATA_REQUIRED = "Request body is empty. Data is required."


def is_v3(path: str) -> bool:
    return path.startswith("/v3/") or path == "/v3"


def service_of(request: Request) -> RestClients:
    """The clients with which the request is served: the caller's, or the proxy's own."""
    found: RestClients = request.scope.get(CLIENTS) or request.app.state.service.own
    return found


def v2(body: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, media_type=V2)


def v3(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(body), status, headers, media_type=JSON)


def done() -> Response:
    return Response(status_code=204)


def parsed(data: bytes) -> Any:
    try:
        return json.loads(data) if _LONG_NUMBER.search(data) else orjson.loads(data)
    except (ValueError, RecursionError) as error:
        raise errors.http_error(400, f"the body is not JSON: {error}") from None


async def json_body(request: Request, message: str = DATA_REQUIRED) -> Any:
    """The body; 42206 where it is missing."""
    data = await request.body()
    if not data.strip():
        raise errors.invalid_payload(message)
    return parsed(data)


async def json_object(request: Request, fields: frozenset[str], *, optional: bool = False) -> dict[str, Any]:
    """The body as an object with these fields; {} for none at all where that is allowed."""
    data = await request.body()
    if not data.strip():
        if optional:
            return {}
        raise errors.invalid_payload(DATA_REQUIRED)
    body = parsed(data)
    if body is None and optional:
        return {}
    return checked_object(body, fields)


def checked_object(body: Any, fields: frozenset[str], where: str = "the body") -> dict[str, Any]:
    if not isinstance(body, dict):
        raise errors.http_error(400, f"{where} must be a JSON object")
    if not body.keys() <= fields:
        raise errors.unprocessable(f"Unrecognized field: {sorted(body.keys() - fields)[0]}")
    return body


def text_of(body: dict[str, Any], name: str, *, needed: bool = False) -> str | None:
    value = body.get(name)
    if value is None and not needed:
        return None
    if not isinstance(value, str):
        raise errors.unprocessable(f"{name}: expected a string, found {_type_name(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise errors.unprocessable(f"{name}: not valid Unicode") from None
    return value


def number_of(body: dict[str, Any], name: str, bits: int = 32, *, needed: bool = False) -> int | None:
    value = body.get(name)
    if value is None and not needed:
        return None
    if type(value) is not int:
        raise errors.unprocessable(f"{name}: expected a number, found {_type_name(value)}")
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise errors.unprocessable(f"{name}: {value} is out of range")
    return value


def flag_of(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and type(value) is not bool:
        raise errors.unprocessable(f"{name}: expected true or false, found {_type_name(value)}")
    return bool(value)


def list_of(body: dict[str, Any], name: str, *, needed: bool = False) -> list[Any]:
    value = body.get(name)
    if value is None and not needed:
        return []
    if not isinstance(value, list):
        raise errors.unprocessable(f"{name}: expected a list, found {_type_name(value)}")
    return value


def _type_name(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "nothing"}
    return names.get(type(value), "a number")


def path_number(text: str) -> int:
    """A partition or broker in a path; one that cannot be is not found."""
    if not text.isascii() or not text.isdecimal() or int(text) >= 1 << 31:
        raise errors.not_found()
    return int(text)


def query_number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None or text == "":
        return default
    try:
        value = int(text)
    except ValueError:
        raise errors.not_found() from None
    if abs(value) >= 1 << 63:
        raise errors.not_found()
    return value


# Addresses


def base_url(request: Request) -> str:
    """Where the client reaches this proxy: as advertised, else as in its request."""
    config = service_of(request).config
    scheme = request.scope.get("scheme", "http")
    for listener in config.value("advertised.listeners"):
        if str(listener).startswith(f"{scheme}://"):
            return str(listener).rstrip("/")
    host = request.headers.get("host", "")
    if not _HOST.fullmatch(host):
        name, port = request.scope.get("server") or ("localhost", None)
        host = f"{name}:{port}" if port else str(name)
    named = config.value("host.name")
    if named:
        _, colon, port = host.rpartition(":")
        host = f"{named}:{port}" if colon and port.isdecimal() else str(named)
    return f"{scheme}://{host}"


def url(base: str, *segments: object) -> str:
    return "/".join((base, *(quote(str(segment), safe="-._~") for segment in segments)))
