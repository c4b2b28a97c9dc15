"""`millstream registry`: run the Schema Registry; `millstream registry codegen`: classes from a schema."""

import argparse
import asyncio
import contextlib
import logging
import signal
import socket
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from millstream import __version__

if TYPE_CHECKING:
    from millstream.registry.settings import RegistrySettings

log = logging.getLogger("millstream.registry")

BACKLOG = 2048
GRACE = 3  # seconds that requests have to end in, and connections to say goodbye
DEEPEST = 4000  # calls within calls: schemas may be nested and recursive


def main(argv: list[str]) -> int:
    if argv[:1] == ["codegen"]:
        from millstream.registry.codegen.command import main as generate

        return generate(argv[1:])
    arguments = _arguments(argv)
    from millstream.registry.settings import RegistrySettings
    from millstream.registry.topic import TopicUnusable
    from millstream.wire.errors import KafkaError

    try:
        settings = RegistrySettings(_properties(arguments))
        logging.basicConfig(
            level="DEBUG" if settings.value("debug") else str(settings.value("log.level")).upper(),
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
            stream=sys.stderr,
        )
        logging.getLogger("httpx").setLevel(logging.WARNING)
        sys.setrecursionlimit(DEEPEST)
        for name in settings.unknown:
            log.warning("the setting %s is not known and has no effect", name)
        return _run(settings)
    except (OSError, ValueError, TopicUnusable, KafkaError) as error:
        print(f"millstream registry: {error}", file=sys.stderr)
        return 1


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="millstream registry",
        description="Run a Schema Registry with Confluent's API. Settings have Confluent's names.",
        epilog="Example: millstream registry --set kafkastore.bootstrap.servers=localhost:9092; "
        "see also: millstream registry codegen --help",
    )
    parser.add_argument(
        "--config", metavar="FILE", help="a schema-registry.properties file; --set wins over it"
    )
    parser.add_argument("file", nargs="?", help="the same, as Confluent's start script takes it")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="overrides",
        help="one setting; can be repeated",
    )
    parser.add_argument("--version", action="version", version=f"millstream {__version__}")
    return parser.parse_args(argv)


def _properties(arguments: argparse.Namespace) -> dict[str, str]:
    from millstream.settings.properties import parse_assignment, read_properties

    path = arguments.config or arguments.file
    properties = read_properties(path) if path else {}
    properties.update(parse_assignment(text) for text in arguments.overrides)
    return properties


def _run(settings: "RegistrySettings") -> int:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings))


async def _serve(settings: "RegistrySettings") -> int:
    import uvicorn

    from millstream.registry.api.app import make_app
    from millstream.registry.api.leading import LeaderClient
    from millstream.registry.service import RegistryService
    from millstream.registry.tls import client_context, server_context

    class Server(uvicorn.Server):
        """One listener. Signals are handled here, once for all listeners."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    began = time.monotonic()
    sockets = [_bind(one.host, one.port) for one in settings.listeners]
    ports = [int(one.getsockname()[1]) for one in sockets]
    options = settings.service(ports)
    service = RegistryService(options)
    secure = any(one.scheme == "https" for one in settings.listeners)
    client = LeaderClient(
        connect=settings.value("leader.connect.timeout.ms") / 1000,
        read=settings.value("leader.read.timeout.ms") / 1000,
        context=lambda: client_context(settings) if secure else True,
    )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    app = make_app(service, settings, client)
    servers = []
    for listener in settings.listeners:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            backlog=BACKLOG,
            timeout_graceful_shutdown=GRACE,
        )
        config.load()
        if listener.scheme == "https":
            config.ssl = server_context(settings)
        servers.append(Server(config))
    starting = asyncio.ensure_future(service.start())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        await service.stop()
        starting.cancel()
        return 0
    await starting
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
        for listener, port in zip(settings.listeners, ports, strict=True)
    )
    print(
        f"millstream registry ready listeners={addresses} schemas={sum(map(len, service.state.versions.values()))} "
        f"in {time.monotonic() - began:.2f} s",
        flush=True,
    )
    await stopping
    for server in servers:
        server.should_exit = True
    await asyncio.gather(*tasks)
    await service.stop()
    await client.close()
    return 0


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
