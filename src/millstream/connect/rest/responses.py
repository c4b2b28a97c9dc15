"""What the resources share: JSON in and out, the herder's errors as HTTP has them, requests for others."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from fastapi import Request, Response

from millstream.connect.config.config_def import ConfigError
from millstream.connect.errors import ConnectError
from millstream.connect.herder import Herder
from millstream.connect.herding.request_errors import BadRequest, Conflict, Elsewhere, Forbidden, NotFound
from millstream.http.cluster_authentication import caller_of
from millstream.http.errors import HttpError
from millstream.http.tls import peer_context
from millstream.wire.errors import KafkaError

JSON = "application/json"
FORWARD_SECONDS = 90.0
Result = TypeVar("Result")


def answer(content: Any, status: int = 200) -> Response:
    return Response(json.dumps(content, separators=(",", ":"), ensure_ascii=False), status, media_type=JSON)


async def call(request: Request, act: Callable[[Herder], Result]) -> Result:
    """In a thread, as the herder waits for its topics."""
    herder: Herder = request.app.state.herder
    try:
        return await asyncio.get_running_loop().run_in_executor(None, act, herder)
    except NotFound as error:
        raise HttpError(404, 404, str(error)) from None
    except Conflict as error:
        raise HttpError(409, 409, str(error)) from None
    except Forbidden as error:
        raise HttpError(403, 403, str(error)) from None
    except (BadRequest, ConfigError) as error:
        raise HttpError(400, 400, str(error)) from None
    except Elsewhere:
        raise
    except (ConnectError, KafkaError) as error:
        raise HttpError(500, 500, str(error)) from None


async def body_of(request: Request) -> Any:
    try:
        return json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise HttpError(400, 400, f"Bad request: the body is not JSON: {error}") from None


def known_fields(content: dict[str, Any], names: tuple[str, ...]) -> None:
    """A field that nobody knows is a mistake, not a wish that may be left out."""
    for name in content:
        if name not in names:
            known = ", ".join(f'"{one}"' for one in names)
            raise HttpError(400, 400, f'Unrecognized field "{name}" (known properties: {known})')


async def forward(request: Request, elsewhere: Elsewhere) -> Response:
    """The same request to the worker that it is for. That one does it, or says why not."""
    if request.query_params.get("forward") == "false":
        raise HttpError(
            409,
            409,
            "Cannot complete request because of a conflicting operation (e.g. worker rebalance)",
        )
    data = await request.body()
    headers = {
        name: value
        for name, value in request.headers.items()
        if name.lower() in ("authorization", "content-type", "accept")
    }
    caller = caller_of(request.scope)
    if caller is not None and caller.authorization:
        headers["authorization"] = caller.authorization
    path = f"{request.url.path}?forward=false"

    def send() -> tuple[int, bytes]:
        target = urlsplit(elsewhere.url)
        kind: Any = http.client.HTTPConnection
        more: dict[str, Any] = {"timeout": FORWARD_SECONDS}
        if target.scheme == "https":
            kind, more["context"] = http.client.HTTPSConnection, peer_context(request.app.state.config)
        connection = kind(target.hostname, target.port, **more)
        try:
            connection.request(request.method, path, data or None, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    try:
        status, body = await asyncio.get_running_loop().run_in_executor(None, send)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise HttpError(500, 500, f"IO Error trying to forward REST request: {error}") from None
    return Response(body, status, media_type=JSON if body else None)
