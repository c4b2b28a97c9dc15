"""Running a service: its command line, its listeners, and its end.

All listeners share one application in one loop. A service is started before it listens; SIGTERM and SIGINT let requests
end, then stop it.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from millstream import __version__

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from millstream.http.service_config import HttpSettings, Setting

log = logging.getLogger(__name__)

BACKLOG = 2048
GRACE = 3  # seconds that requests have to end in, and connections to say goodbye


def properties(
    argv: list[str], name: str, table: "Mapping[str, Setting]", description: str, epilog: str
) -> dict[str, str]:
    """The settings of a command line: `--config FILE`, or the file alone, and `--set NAME=VALUE`, which wins. ValueError
    for what is none; SystemExit after --help and --print-config."""
    from millstream.settings.properties import parse_assignment, read_properties

    parser = argparse.ArgumentParser(prog=f"millstream {name}", description=description, epilog=epilog)
    parser.add_argument("--config", metavar="FILE", help="a .properties file; --set wins over it")
    parser.add_argument("file", nargs="?", help="the same as --config FILE")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="overrides",
        help="one setting; can be repeated",
    )
    parser.add_argument(
        "--print-config",
        action="store_true",
        help="print all settings with their defaults and what they do, and end",
    )
    parser.add_argument("--version", action="version", version=f"millstream {__version__}")
    arguments = parser.parse_args(argv)
    if arguments.print_config:
        lines = (f"# {row.text}\n{setting}={row.default or ''}\n" for setting, row in table.items())
        try:
            print("\n".join(lines), flush=True)
        except BrokenPipeError:  # whoever reads it has seen enough; Python would complain once more at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise SystemExit(0)
    path = arguments.config or arguments.file
    try:
        found = read_properties(path) if path else {}
    except OSError as error:
        raise ValueError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
    found.update(parse_assignment(text) for text in arguments.overrides)
    return found


def start_logging(settings: "HttpSettings") -> None:
    logging.basicConfig(
        level=settings.log_level,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    for name in settings.unknown:
        log.warning("the setting %s is not known and has no effect", name)


async def serve(
    name: str,
    settings: "HttpSettings",
    sockets: list[socket.socket],
    app: "ASGIApp",
    start: Callable[[], Awaitable[str]],
    stop: Callable[[], Awaitable[None]],
    ending: asyncio.Event | None = None,
) -> int:
    """Start the service, listen until told to end, stop it. What `start` returns is part of the `ready` line. `ending` is
    set when the end begins, for answers that would go on for ever."""
    import uvicorn

    from millstream.http.tls import server_context

    class Server(uvicorn.Server):
        """One listener. Signals are handled here, once for all listeners."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    began = time.monotonic()
    ending = ending or asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    servers = []
    for listener in settings.listeners:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            backlog=BACKLOG,
            timeout_graceful_shutdown=GRACE,
        )
        config.load()
        if listener.scheme == "https":
            config.ssl = server_context(settings)
        servers.append(Server(config))
    starting = asyncio.ensure_future(start())
    stopping = asyncio.ensure_future(ending.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if ending.is_set():
        await stop()
        starting.cancel()
        return 0
    facts = await starting
    tasks = [
        asyncio.ensure_future(server.serve(sockets=[one]))
        for server, one in zip(servers, sockets, strict=True)
    ]
    while not all(  # noqa: ASYNC110 - uvicorn has no event for it
        server.started or task.done() for server, task in zip(servers, tasks, strict=True)
    ):
        await asyncio.sleep(0.002)
    addresses = ",".join(
        f"{listener.scheme}://{listener.host}:{port}"
        for listener, port in zip(settings.listeners, ports(sockets), strict=True)
    )
    print(
        f"millstream {name} ready listeners={addresses} {facts} in {time.monotonic() - began:.2f} s",
        flush=True,
    )
    await stopping
    for server in servers:
        server.should_exit = True
    await asyncio.gather(*tasks)
    await stop()
    return 0


def bind(settings: "HttpSettings") -> list[socket.socket]:
    """A socket for each listener; OSError says which address cannot be had."""
    return [_bind(one.host, one.port) for one in settings.listeners]


def ports(sockets: list[socket.socket]) -> list[int]:
    return [int(one.getsockname()[1]) for one in sockets]


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from None
    made.setblocking(False)
    return made
