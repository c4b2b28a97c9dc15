"""`millstream broker`: read the settings, run the loop, report readiness, stop cleanly on SIGTERM or
SIGINT."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import signal
import sys
import time

from millstream import __version__

logger = logging.getLogger("millstream.broker")


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="millstream broker",
        description="Run a Kafka-compatible broker. Settings have Apache Kafka's names.",
        epilog=(
            "Example: millstream broker --set log.dirs=/var/lib/millstream --set "
            "listeners=PLAINTEXT://127.0.0.1:9092"
        ),
    )
    parser.add_argument("--config", metavar="FILE", help="a server.properties file; --set wins over it")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="overrides",
        help="one setting; can be repeated",
    )
    parser.add_argument(
        "--print-config", action="store_true", help="print a commented server.properties and exit"
    )
    parser.add_argument("--version", action="version", version=f"millstream {__version__}")
    return parser.parse_args(argv)


def _properties(arguments: argparse.Namespace) -> dict[str, str]:
    from millstream.settings.properties import parse_assignment, read_properties

    properties = read_properties(arguments.config) if arguments.config else {}
    properties.update(parse_assignment(text) for text in arguments.overrides)
    return properties


def main(argv: list[str] | None = None) -> int:
    began = time.monotonic()
    arguments = _arguments(sys.argv[1:] if argv is None else argv)
    if arguments.print_config:
        from millstream.settings.render import server_properties

        print(server_properties(), end="")
        return 0
    # Until the start is over, which makes little garbage.
    gc.disable()
    from millstream.settings.resolve import BrokerSettings
    from millstream.settings.values import InvalidSetting

    try:
        settings = BrokerSettings(_properties(arguments))
    except (OSError, ValueError, InvalidSetting) as error:
        print(f"millstream broker: {error}", file=sys.stderr)
        return 2
    from millstream.broker import log_format

    log_format.configure(settings.string("millstream.log.format"), settings.string("millstream.log.level"))
    for warning in settings.warnings():
        logging.getLogger("millstream.settings").warning("%s", warning)
    from millstream.broker.server import Broker, CannotStart

    try:
        return _run(Broker(settings), began)
    except CannotStart as error:
        logger.error("%s", error)
        print(f"millstream broker: {error}", file=sys.stderr)
        return 1


def _run(broker: object, began: float) -> int:
    import uvloop

    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(_serve(broker, began))
    finally:
        loop.close()


async def _serve(broker: object, began: float) -> int:
    from millstream.broker.server import Broker
    from millstream.cluster.store import IdTaken, UnsupportedLevel

    assert isinstance(broker, Broker)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await broker.start()
    # What is alive now stays alive; keep the collector away from it.
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    gc.enable()
    listeners = ",".join(
        f"{acceptor.context.name}://{acceptor.host}:{acceptor.port}" for acceptor in broker.acceptors
    )
    print(
        f"ready node.id={broker.node_id} cluster.id={broker.cluster_id} listeners={listeners} "
        f"partitions={len(broker.partitions)} seconds={time.monotonic() - began:.3f}",
        flush=True,
    )
    no_metadata = asyncio.ensure_future(broker.controller.failed())
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait((no_metadata, broker.failed, stopped), return_when=asyncio.FIRST_COMPLETED)
    if broker.failed.done():
        logger.critical("stopping: %s", broker.failed.result())
    elif no_metadata.done() and isinstance(no_metadata.result(), IdTaken | UnsupportedLevel):
        logger.critical("stopping: %s", no_metadata.result())
    elif no_metadata.done():
        logger.critical("stopping: the metadata log can no longer be followed: %s", no_metadata.result())
    await broker.stop()
    return 0 if stopped.done() else 1
