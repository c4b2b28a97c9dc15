"""Running a service: its listeners, its `ready` line, and its end.

All listeners share one application in one event loop. A service is started before it listens; SIGTERM and
SIGINT let running requests end, then stop it.
"""

import asyncio
import contextlib
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from millstream.http.service_config import ServiceConfig
from millstream.http.tls import keep_stores, server_context
from millstream.http.upgrades import HttpProtocol

BACKLOG = 2048
# How long running requests may take to end, and connections to close.
GRACEFUL_SHUTDOWN_SECONDS = 3


@dataclass(frozen=True, slots=True)
class HttpService:
    """A service that is put together but not started yet. What `start` returns is part of the `ready` line.
    `ending` is set when the shutdown begins, for responses that would never end by themselves.
    `websockets` says that the application takes them."""

    app: ASGIApp
    start: Callable[[], Awaitable[str]]
    stop: Callable[[], Awaitable[None]]
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    websockets: bool = False


class _Server(uvicorn.Server):
    """One listener. Signals are handled in `serve`, once for all listeners."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(name: str, config: ServiceConfig, sockets: list[socket.socket], service: HttpService) -> int:
    """Start the service, listen until a signal comes, stop it; the exit status."""
    began = time.monotonic()
    ending = service.ending
    loop = asyncio.get_running_loop()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ending.set)
    servers = _servers(config, service)
    contexts = [server.config.ssl for server in servers if server.config.ssl is not None]
    starting = asyncio.ensure_future(service.start())
    stopping = asyncio.ensure_future(ending.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if ending.is_set():
        await service.stop()
        starting.cancel()
        return 0
    facts = await starting
    tasks = [
        asyncio.ensure_future(server.serve(sockets=[listening]))
        for server, listening in zip(servers, sockets, strict=True)
    ]
    while not all(  # noqa: ASYNC110 - uvicorn has no event for it
        server.started or task.done() for server, task in zip(servers, tasks, strict=True)
    ):
        await asyncio.sleep(0.002)
    keeping = [asyncio.ensure_future(keep_stores(context, config)) for context in contexts]
    addresses = ",".join(
        f"{listener.scheme}://{listener.host}:{port}"
        for listener, port in zip(config.listeners, bound_ports(sockets), strict=True)
    )
    seconds = time.monotonic() - began
    print(f"millstream {name} ready listeners={addresses} {facts} in {seconds:.2f} s", flush=True)
    await stopping
    for task in keeping:
        task.cancel()
    for server in servers:
        server.should_exit = True
    await asyncio.gather(*tasks)
    await service.stop()
    return 0


def _servers(config: ServiceConfig, service: HttpService) -> list[_Server]:
    servers = []
    websockets: Any = "none"
    if service.websockets:
        from millstream.http.websocket_protocol import WebSocketProtocol

        websockets = WebSocketProtocol
    for listener in config.listeners:
        uvicorn_config = uvicorn.Config(
            service.app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http=HttpProtocol,
            ws=websockets,
            backlog=BACKLOG,
            timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_SECONDS,
        )
        uvicorn_config.load()
        if listener.scheme == "https":
            uvicorn_config.ssl = server_context(config)
        servers.append(_Server(uvicorn_config))
    return servers


def bind(config: ServiceConfig) -> list[socket.socket]:
    """A socket for each listener; OSError names the address that cannot be bound."""
    return [_bind(listener.host, listener.port) for listener in config.listeners]


def bound_ports(sockets: list[socket.socket]) -> list[int]:
    return [int(bound.getsockname()[1]) for bound in sockets]


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from None
    bound.setblocking(False)
    return bound
