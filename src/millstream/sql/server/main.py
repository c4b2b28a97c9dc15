"""`millstream sql-server`: run the SQL server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.http.serving import HttpService
    from millstream.sql.server.sql_config import SqlConfig


def main(argv: list[str]) -> int:
    from millstream.http.service_main import run_service
    from millstream.sql.commands import CommandTopicUnusable
    from millstream.sql.errors import SqlError
    from millstream.sql.server.sql_config import SqlConfig
    from millstream.wire.errors import KafkaError

    return run_service(
        "sql-server",
        _with_queries_file(argv),
        SqlConfig,
        build,
        description="Run a SQL server with ksqlDB's API. Settings have ksqlDB's names.",
        epilog="Example: millstream sql-server --set bootstrap.servers=localhost:9092 "
        "--set ksql.schema.registry.url=http://localhost:8081",
        start_errors=(CommandTopicUnusable, KafkaError, SqlError),
    )


def _with_queries_file(argv: list[str]) -> list[str]:
    """`--queries-file F` is `--set ksql.queries.file=F`, as ksqlDB's own command has it."""
    found: list[str] = []
    rest = iter(argv)
    for one in rest:
        if one == "--queries-file":
            found += ["--set", f"ksql.queries.file={next(rest, '')}"]
        elif one.startswith("--queries-file="):
            found += ["--set", f"ksql.queries.file={one.partition('=')[2]}"]
        else:
            found.append(one)
    return found


def build(config: SqlConfig, ports: list[int]) -> HttpService:
    from millstream.http.cluster_authentication import cluster_login
    from millstream.http.serving import HttpService
    from millstream.sql.server.app import make_app
    from millstream.sql.server.service import SqlService

    login = cluster_login(config, config.client())
    service = SqlService(config, ports[0])

    async def start() -> str:
        return await asyncio.get_running_loop().run_in_executor(None, service.start)

    async def stop() -> None:
        if login is not None:
            login.close()
        await asyncio.get_running_loop().run_in_executor(None, service.stop)

    return HttpService(make_app(service, login), start, stop, websockets=True)
