"""`millstream registry`: run the Schema Registry; `millstream registry codegen`: classes from a schema."""

import asyncio
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.registry.registry_config import RegistrySettings

DEEPEST = 4000  # calls within calls: schemas may be nested and recursive


def main(argv: list[str]) -> int:
    if argv[:1] == ["codegen"]:
        from millstream.registry.codegen.command import main as generate

        return generate(argv[1:])
    from millstream.http.serving import properties, start_logging
    from millstream.registry.registry_config import SETTINGS, RegistrySettings
    from millstream.registry.schemas_topic import TopicUnusable
    from millstream.wire.errors import KafkaError

    try:
        given = properties(
            argv,
            "registry",
            SETTINGS,
            "Run a Schema Registry with Confluent's API. Settings have Confluent's names.",
            "Example: millstream registry --set kafkastore.bootstrap.servers=localhost:9092; "
            "see also: millstream registry codegen --help",
        )
        settings = RegistrySettings(given)
        start_logging(settings)
        sys.setrecursionlimit(DEEPEST)
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(settings))
    except (OSError, ValueError, TopicUnusable, KafkaError) as error:
        print(f"millstream registry: {error}", file=sys.stderr)
        return 1


async def _serve(settings: "RegistrySettings") -> int:
    from millstream.http.serving import bind, ports, serve
    from millstream.registry.api.app import make_app
    from millstream.registry.api.forwarding import LeaderClient
    from millstream.registry.service import RegistryService
    from millstream.registry.tls import client_context

    sockets = bind(settings)
    service = RegistryService(settings.service(ports(sockets)))
    secure = any(one.scheme == "https" for one in settings.listeners)
    client = LeaderClient(
        connect=settings.value("leader.connect.timeout.ms") / 1000,
        read=settings.value("leader.read.timeout.ms") / 1000,
        context=lambda: client_context(settings) if secure else True,
    )

    async def start() -> str:
        await service.start()
        return f"schemas={sum(map(len, service.state.versions.values()))}"

    async def stop() -> None:
        await service.stop()
        await client.close()

    return await serve("registry", settings, sockets, make_app(service, settings, client), start, stop)
