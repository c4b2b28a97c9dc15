"""The table of services. A row is all that `millstream up` knows about one."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

READY = re.compile(rb"\bready\b[^\n]*\n")


@dataclass(frozen=True, slots=True)
class Service:
    """One service.

    settings   `--set NAME=VALUE` of its command. {host}, {advertised}, {port}, {data} (a folder of its own) and
               {broker}, {registry}, ... (addresses of the others, also of those that do not run here) are filled in.
    offset     its place behind --port-base; `port` is the one that users expect, without --port-base.
    needs      services that have to be ready before it may begin. It is loaded into memory meanwhile: `preload`.
    ready      what it prints when it can be used.
    module     must be there, else the service cannot run (an extra of the package is missing); empty: always there.
    """

    name: str
    what: str
    port: int
    offset: int
    settings: Mapping[str, str]
    scheme: str = ""
    needs: Sequence[str] = ()
    preload: Sequence[str] = ()
    module: str = ""
    ready: re.Pattern[bytes] = READY
    default: bool = True
    extra: Sequence[str] = field(default=())  # more words of its command

    def address(self, host: str, port: int) -> str:
        shown = f"[{host}]" if ":" in host else host
        return f"{self.scheme}://{shown}:{port}" if self.scheme else f"{shown}:{port}"


BROKER = Service(
    name="broker",
    what="Kafka protocol",
    port=9092,
    offset=0,
    settings={
        "log.dirs": "{data}",
        "listeners": "PLAINTEXT://{host}:{port}",
        "advertised.listeners": "PLAINTEXT://{advertised}:{port}",
        "group.initial.rebalance.delay.ms": "0",  # on one machine nobody gains from waiting for more members
    },
)

REGISTRY = Service(
    name="registry",
    what="Schema Registry, Confluent's API",
    port=8081,
    offset=1,
    settings={"listeners": "http://{host}:{port}", "kafkastore.bootstrap.servers": "{broker}"},
    scheme="http",
    needs=("broker",),
    preload=(
        "uvicorn",
        "millstream.registry.api.app",
        "millstream.registry.service",
        "millstream.registry.tls",
    ),
    module="fastapi",
)

REST = Service(
    name="rest",
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
    preload=("uvicorn", "millstream.rest.api.app", "millstream.rest.service", "millstream.http.tls"),
    module="fastapi",
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
    },
    scheme="http",
    needs=("broker",),
    preload=("uvicorn", "millstream.console.app", "millstream.console.context", "millstream.http.tls"),
    module="fastapi",
)

SERVICES: dict[str, Service] = {service.name: service for service in (BROKER, REGISTRY, REST, CONSOLE)}
