"""Settings of a task's client: the worker's (`producer.`, `consumer.`), and above them the connector's own
(`producer.override.`, `consumer.override.`, KIP-458).

Honoured are the login and timeouts of both; `compression.type` with its levels and `max.request.size` of a
source's producer; `group.id`, `max.poll.records` and `auto.offset.reset` of a sink's consumer. All else is
accepted and has no meaning here: batches are as large as what was polled, and sinks read committed records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from millstream.client import EARLIEST, LATEST, ClientConfig
from millstream.connect.config.config_def import ConfigError
from millstream.wire.compression import CODEC_IDS

Kind = Literal["producer", "consumer"]
POLICIES: dict[str, frozenset[str] | None] = {
    "All": None,
    "None": frozenset(),
    "Principal": frozenset({"sasl.jaas.config", "sasl.mechanism", "security.protocol"}),
}
"""What connectors may override, by the worker's policy."""
OVERRIDE_POLICY = "connector.client.config.override.policy"
OVERRIDES = ("producer.override.", "consumer.override.", "admin.override.")
_DEFAULT_POLL_RECORDS = 500


def client_settings(kind: Kind, settings: Mapping[str, str], worker: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for source, prefix in ((worker, f"{kind}."), (settings, f"{kind}.override.")):
        found |= {name[len(prefix) :]: text for name, text in source.items() if name.startswith(prefix)}
    return found


def client_config(worker: Mapping[str, str], own: Mapping[str, str], base: ClientConfig) -> ClientConfig:
    """The worker's client with other logins or timeouts, but the same brokers."""
    changed = {name: text for name, text in own.items() if name.startswith(("sasl.", "ssl.", "security."))}
    changed |= {name: text for name, text in own.items() if name.endswith(".ms")}
    if not changed:
        return base
    servers = ",".join(f"{host}:{port}" for host, port in base.bootstrap)
    try:
        return ClientConfig.of(servers, {**worker, **changed}, base.client_id)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def policy_of(text: str) -> str:
    """By its short name or its class name."""
    name = text.rpartition(".")[2].removesuffix("ConnectorClientConfigOverridePolicy")
    if name not in POLICIES:
        raise ConfigError.of(OVERRIDE_POLICY, text, f"it is one of {', '.join(POLICIES)} here")
    return name


def refusal(name: str, policy: str) -> str | None:
    """Why a connector may not have this setting of a client; None if it may."""
    allowed = POLICIES[policy]
    own = next((name[len(prefix) :] for prefix in OVERRIDES if name.startswith(prefix)), None)
    if own is None or allowed is None or own in allowed:
        return None
    return f"The '{policy}' policy does not allow '{own}' to be overridden in the connector configuration."


def consumer_group(connector: str, settings: Mapping[str, str]) -> str:
    return settings.get("consumer.override.group.id") or f"connect-{connector}"


def compression(own: Mapping[str, str]) -> tuple[int, int | None]:
    """The codec of a producer's batches, and its level."""
    name = own.get("compression.type", "none")
    if name not in CODEC_IDS:
        raise ConfigError.of("compression.type", name, "String must be one of: none, gzip, snappy, lz4, zstd")
    level = own.get(f"compression.{name}.level")
    return CODEC_IDS[name], None if level is None else _number(f"compression.{name}.level", level)


def poll_records(own: Mapping[str, str]) -> int:
    given = own.get("max.poll.records")
    return _DEFAULT_POLL_RECORDS if given is None else max(1, _number("max.poll.records", given))


def first_offset(own: Mapping[str, str]) -> int:
    """Where a partition begins that the group has no offset of."""
    given = own.get("auto.offset.reset", "earliest").lower()
    if given not in ("earliest", "latest"):
        raise ConfigError.of("auto.offset.reset", given, "Invalid value; it is earliest or latest here")
    return LATEST if given == "latest" else EARLIEST


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError.of(name, text, "Not a number of type INT") from None
