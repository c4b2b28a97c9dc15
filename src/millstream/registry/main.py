"""`millstream registry`: run the Schema Registry; `millstream registry codegen`: classes from a schema."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.http.serving import HttpService
    from millstream.registry.registry_config import RegistryConfig


def main(argv: list[str]) -> int:
    if argv[:1] == ["codegen"]:
        from millstream.serdes.codegen.command import main as generate

        return generate(argv[1:])
    from millstream.http.service_main import run_service
    from millstream.registry.registry_config import RegistryConfig
    from millstream.registry.schemas_topic import TopicUnusable
    from millstream.wire.errors import KafkaError

    return run_service(
        "registry",
        argv,
        RegistryConfig,
        _build,
        description="Run a Schema Registry with Confluent's API. Settings have Confluent's names.",
        epilog="Example: millstream registry --set kafkastore.bootstrap.servers=localhost:9092; "
        "see also: millstream registry codegen --help",
        start_errors=(TopicUnusable, KafkaError),
    )


def _build(config: "RegistryConfig", ports: list[int]) -> "HttpService":
    from millstream.http.serving import HttpService
    from millstream.registry.api.app import callers_of, make_app
    from millstream.registry.api.forwarding import LeaderClient
    from millstream.registry.service import RegistryService

    service = RegistryService(config.service(ports))
    client = LeaderClient(config)
    callers = callers_of(config)

    async def start() -> str:
        await service.start()
        return f"schemas={sum(map(len, service.state.versions.values()))}"

    async def stop() -> None:
        await service.stop()
        await client.close()
        if callers is not None:
            callers.close()

    return HttpService(make_app(service, config, client, callers), start, stop)
