"""`millstream rest`: run the REST Proxy."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.http.serving import HttpService
    from millstream.rest.rest_config import RestConfig


def main(argv: list[str]) -> int:
    from millstream.http.service_main import run_service
    from millstream.rest.rest_config import RestConfig

    return run_service(
        "rest",
        argv,
        RestConfig,
        _build,
        description="Run a REST Proxy with Confluent's API. Settings have Confluent's names.",
        epilog="Example: millstream rest --set bootstrap.servers=localhost:9092 "
        "--set schema.registry.url=http://localhost:8081",
    )


def _build(config: "RestConfig", ports: list[int]) -> "HttpService":
    from millstream.http.serving import HttpService
    from millstream.rest.api.app import make_app
    from millstream.rest.service import RestService

    service = RestService(config)
    return HttpService(make_app(service), service.start, service.stop)
