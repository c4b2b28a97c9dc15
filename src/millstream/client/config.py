"""Where the cluster is, and how patient to be. Plain values only, so that it can be pickled to a Spark
task."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from millstream.client.security import Sasl, Tls, read_security

DEFAULT_PORT = 9092
Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Times are in seconds."""

    bootstrap: tuple[Address, ...]
    client_id: str = "millstream"
    connect_timeout: float = 10.0
    request_timeout: float = 30.0  # one answer
    total_timeout: float = 60.0  # one call, with all its tries
    retry_backoff: float = 0.1
    retry_backoff_max: float = 1.0
    security_protocol: str = "PLAINTEXT"
    tls: Tls | None = None
    sasl: Sasl | None = None

    @classmethod
    def of(
        cls, servers: str, properties: Mapping[str, str] | None = None, client_id: str = ""
    ) -> "ClientConfig":
        """From `host:port,...` and the properties of a Kafka client. Names this client has no use for
        (serializers, batching) are ignored, as Kafka's clients do; a value that cannot be honoured is a
        ValueError."""
        given = properties or {}
        config = cls(parse_addresses(servers or given.get("bootstrap.servers", "")))
        changes: dict[str, str | float] = {}
        for name, field in _MILLISECONDS.items():
            if name in given:
                changes[field] = _number(name, given[name]) / 1000
        chosen = given.get("client.id", client_id)
        if chosen:
            changes["client_id"] = chosen
        protocol, tls, sasl = read_security(given)
        return replace(config, security_protocol=protocol, tls=tls, sasl=sasl, **changes)  # type: ignore[arg-type]


_MILLISECONDS = {
    "socket.connection.setup.timeout.ms": "connect_timeout",
    "request.timeout.ms": "request_timeout",
    "default.api.timeout.ms": "total_timeout",
    "retry.backoff.ms": "retry_backoff",
    "retry.backoff.max.ms": "retry_backoff_max",
}


def parse_addresses(text: str) -> tuple[Address, ...]:
    """`host:port` separated by commas; `[::1]:9092` for IPv6; a listener name in front (`PLAINTEXT://`) is
    dropped."""
    found = []
    for item in text.split(","):
        item = item.strip()
        if not item:
            continue
        _, _, item = item.rpartition("://")
        host, colon, port = item.rpartition(":")
        if not colon or (host.startswith("[") and not host.endswith("]")):
            host, port = item, str(DEFAULT_PORT)
        host = host.strip("[]")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            # Without a login: somebody may have given an address with one.
            raise ValueError(f"'{item.rpartition('@')[2]}' is not an address: use host:port")
        found.append((host, int(port)))
    if not found:
        raise ValueError("no broker address: use host:port")
    return tuple(found)


def _number(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{name}={value} is not a number") from None
