"""`millstream rest`: run the REST Proxy."""

import asyncio
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.rest.rest_config import RestSettings

DEEPEST = 4000  # calls within calls: schemas may be nested and recursive


def main(argv: list[str]) -> int:
    from millstream.http.serving import properties, start_logging
    from millstream.rest.rest_config import SETTINGS, RestSettings

    try:
        given = properties(
            argv,
            "rest",
            SETTINGS,
            "Run a REST Proxy with Confluent's API. Settings have Confluent's names.",
            "Example: millstream rest --set bootstrap.servers=localhost:9092 "
            "--set schema.registry.url=http://localhost:8081",
        )
        settings = RestSettings(given)
        start_logging(settings)
        sys.setrecursionlimit(DEEPEST)
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(settings))
    except (OSError, ValueError) as error:
        print(f"millstream rest: {error}", file=sys.stderr)
        return 1


async def _serve(settings: "RestSettings") -> int:
    from millstream.http.serving import bind, serve
    from millstream.rest.api.app import make_app
    from millstream.rest.service import RestService

    sockets = bind(settings)
    service = RestService(settings)
    return await serve("rest", settings, sockets, make_app(service), service.start, service.stop)
