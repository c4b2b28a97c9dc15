"""The table of services. A row is all that `millstream up` knows about one."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

READY = re.compile(rb"\bready\b[^\n]*\n")


@dataclass(frozen=True, slots=True)
class Service:
    """One service.

    settings      `--set NAME=VALUE` of its command. {host}, {advertised}, {port}, {data} (its own folder)
                  and {broker}, {registry}, ... (addresses of the others, also of those that do not run here)
                  are filled in. {driver} is the folder of the driver that services with work for Spark
                  share. {metrics} lists where the services of this `up` serve their metrics.
    offset        its distance from --port-base; `port` is the one that users expect, without --port-base
    metrics_port  port and offset of a separate listener for metrics, {metrics_port}; the other services
                  serve them on `port`
    needs         services that have to be ready before it may begin; meanwhile it loads `preload`
    ready         what it prints when it can be used
    forked        made by fork where that can be, after the supervisor has loaded SHARED
    module        must be importable, else an extra of the package is missing; empty: always there
    config        MODULE:CLASS of its settings; the broker has the table of Kafka's
    local         listens on 127.0.0.1 alone, whatever --host says
    """

    name: str
    what: str
    port: int
    offset: int
    settings: Mapping[str, str]
    scheme: str = ""
    metrics_port: tuple[int, int] | None = None
    needs: Sequence[str] = ()
    preload: Sequence[str] = ()
    forked: bool = False
    module: str = ""
    config: str = ""
    ready: re.Pattern[bytes] = READY
    default: bool = True
    extra: Sequence[str] = field(default=())  # more words of its command
    title: str = ""  # what sentences call it, where its name would be misread
    command: str = ""  # the word of the command line that runs it, where that is not its name
    local: bool = False

    @property
    def display_name(self) -> str:
        return self.title or self.name

    def address(self, host: str, port: int) -> str:
        shown = f"[{host}]" if ":" in host else host
        return f"{self.scheme}://{shown}:{port}" if self.scheme else f"{shown}:{port}"


# What the HTTP services have in common: most of what they load.
SHARED = (
    "uvloop",
    "uvicorn",
    "uvicorn.protocols.http.auto",
    "uvicorn.lifespan.off",
    "fastapi",
    "millstream.client",
    "millstream.http.app",
    "millstream.http.authentication",
    "millstream.http.serving",
    "millstream.serdes",
)

BROKER = Service(
    name="broker",
    what="Kafka protocol",
    port=9092,
    offset=0,
    settings={
        "log.dirs": "{data}",
        "listeners": "PLAINTEXT://{host}:{port}",
        "advertised.listeners": "PLAINTEXT://{advertised}:{port}",
        "millstream.metrics.listener": "{host}:{metrics_port}",
        # Long enough for consumers that start together to share their first generation, and too short to be
        # noticed. With 0 the first one is given everything before the second has joined.
        "group.initial.rebalance.delay.ms": "100",
    },
    metrics_port=(9404, 4),
)

REGISTRY = Service(
    name="registry",
    what="Schema Registry, Confluent's API",
    port=8081,
    offset=1,
    settings={"listeners": "http://{host}:{port}", "kafkastore.bootstrap.servers": "{broker}"},
    scheme="http",
    needs=("broker",),
    preload=("millstream.registry.api.app",),
    forked=True,
    module="fastapi",
    config="millstream.registry.registry_config:RegistryConfig",
)

REST = Service(
    name="rest",
    title="REST proxy",
    what="REST Proxy, Confluent's API",
    port=8082,
    offset=2,
    settings={
        "listeners": "http://{host}:{port}",
        "bootstrap.servers": "{broker}",
        "schema.registry.url": "{registry}",
    },
    scheme="http",
    needs=("broker",),
    preload=("millstream.rest.api.app",),
    forked=True,
    module="fastapi",
    config="millstream.rest.rest_config:RestConfig",
)

CONSOLE = Service(
    name="console",
    what="web console",
    port=8080,
    offset=3,
    settings={
        "listeners": "http://{host}:{port}",
        "bootstrap.servers": "{broker}",
        "schema.registry.url": "{registry}",
        "metrics.urls": "{metrics}",
    },
    scheme="http",
    needs=("broker",),
    preload=("millstream.console.app",),
    forked=True,
    module="fastapi",
    config="millstream.console.console_config:ConsoleConfig",
)

SQL = Service(
    name="sql",
    command="sql-server",
    title="SQL server",
    what="SQL server, ksqlDB's API",
    port=8088,
    offset=6,
    settings={
        "listeners": "http://{host}:{port}",
        "bootstrap.servers": "{broker}",
        "ksql.schema.registry.url": "{registry}",
        "ksql.streams.state.dir": "{data}",
        "millstream.driver.dir": "{driver}",
    },
    scheme="http",
    needs=("broker",),
    preload=("millstream.sql.server.app",),
    module="fastapi",
    config="millstream.sql.server.sql_config:SqlConfig",
    default=False,
)

CONNECT = Service(
    name="connect",
    title="Connect worker",
    what="Kafka Connect's REST API",
    port=8083,
    offset=5,
    settings={
        "listeners": "http://{host}:{port}",
        "bootstrap.servers": "{broker}",
        "schema.registry.url": "{registry}",
        "millstream.driver.dir": "{driver}",
    },
    scheme="http",
    needs=("broker",),
    preload=("millstream.connect.rest.app",),
    module="pyspark",
    config="millstream.connect.worker_config:DistributedConfig",
    default=False,
    extra=("distributed",),
)

SERVICES: dict[str, Service] = {
    service.name: service for service in (BROKER, REGISTRY, REST, CONSOLE, CONNECT, SQL)
}
