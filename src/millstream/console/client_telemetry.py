"""Which consumer is slow, and why: from what clients push to the brokers (KIP-714).

The brokers' pages of metrics have it as `kafka_client_*`, with `kafka_client_info` for who the client is. Of
a consumer that lags, the fraction of time that it spends idle in `poll` tells whether it waits for the
brokers or for its own application; throttle time and fetch latency tell what it waits for. Java's consumers
push all of these if the subscription asks for them, librdkafka's fewer: what is not there is not guessed.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

MAX_CLIENTS = 2000
BUSY = 0.5  # less idle than that, the application is what takes the time
SLOW_FETCH_MS = 1000.0  # twice what a broker waits for new records (fetch.max.wait.ms)

INFO = "kafka_client_info"
# Where the figures are, for each field; the largest of several series of a client counts.
_CONSUMER = "kafka_client_consumer_"
FIELDS = {
    "poll_idle": ("poll_idle_ratio_avg",),
    "fetch_ms": ("fetch_manager_fetch_latency_avg",),
    "fetch_max_ms": ("fetch_manager_fetch_latency_max",),
    "throttle_ms": ("fetch_manager_fetch_throttle_time_avg",),
    "request_ms": ("node_request_latency_avg",),
    "commit_ms": ("coordinator_commit_latency_avg",),
    "rebalance_ms": ("coordinator_rebalance_latency_avg",),
    "own_lag": ("fetch_manager_records_lag_max", "fetch_manager_records_lag"),
    "records_rate": ("fetch_manager_records_consumed_rate",),
    "partitions": ("coordinator_assigned_partitions",),
}
_FIELD_OF = {_CONSUMER + name: field for field, names in FIELDS.items() for name in names}
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


@dataclass
class ConsumerTelemetry:
    """One consumer. Times are in milliseconds; None: the client does not say it."""

    instance: str
    client_id: str = ""
    group: str = ""
    software: str = ""
    address: str = ""
    principal: str = ""
    lag: int | None = None  # of its group
    values: dict[str, float] = field(default_factory=dict)

    def value(self, name: str) -> float | None:
        return self.values.get(name)

    @property
    def verdict(self) -> tuple[str, str]:
        """How it does (good, warn, bad, or empty), and why."""
        behind = self.values.get("own_lag", self.lag)
        idle, fetch = self.values.get("poll_idle"), self.values.get("fetch_ms")
        throttle = self.values.get("throttle_ms", 0.0)
        if throttle > 0:
            return "bad", f"throttled: a quota holds each fetch back for {throttle:.0f} ms"
        if not behind:
            return ("", "its lag is not known") if behind is None else ("good", "keeps up")
        if self.values.get("partitions") == 0:
            return "", "has no partitions; others of its group read them"
        if idle is not None and idle < BUSY:
            return "bad", f"its application is busy {1 - idle:.0%} of the time: more consumers would help"
        if fetch is not None and fetch >= SLOW_FETCH_MS:
            return "bad", f"waits for the brokers: a fetch takes {fetch:.0f} ms"
        if idle is not None:
            return (
                "warn",
                f"lags, though it is idle {idle:.0%} of the time: catching up, or the network is slow",
            )
        return "warn", "lags; the client does not say how long it is idle in poll"


def consumers(pages: Iterable[str], lags: Mapping[str, int]) -> list[ConsumerTelemetry]:
    """The consumers on brokers' pages of metrics, the slowest first. `lags` are those of groups."""
    found: dict[str, ConsumerTelemetry] = {}
    described: dict[str, dict[str, str]] = {}
    for page in pages:
        for line in page.splitlines():
            if not line.startswith("kafka_client_"):
                continue
            name, brace, rest = line.partition("{")
            if not brace or (name != INFO and not name.startswith(_CONSUMER)):
                continue
            text, _, number = rest.rpartition("} ")
            labels = {key: _ESCAPED.sub(_unescaped, value) for key, value in _LABEL.findall(text)}
            instance = labels.get("client_instance_id", "")
            if name == INFO:
                described[instance] = labels
                continue
            if not instance or (instance not in found and len(found) >= MAX_CLIENTS):
                continue
            one = found.setdefault(instance, ConsumerTelemetry(instance))
            _take(one, name, labels, number)
    for instance, one in found.items():
        about = described.get(instance, {})
        one.group = one.group or about.get("group_id", "")
        one.client_id = about.get("client_id", one.client_id)
        one.software = " ".join(
            filter(None, (about.get("client_software_name"), about.get("client_software_version")))
        )
        one.address, one.principal = about.get("client_source_address", ""), about.get("principal", "")
        one.lag = lags.get(one.group)
    order = {"bad": 0, "warn": 1, "": 2, "good": 3}
    return sorted(
        found.values(),
        key=lambda one: (order[one.verdict[0]], -one.values.get("own_lag", one.lag or 0), one.client_id),
    )


def _take(one: ConsumerTelemetry, name: str, labels: Mapping[str, str], number: str) -> None:
    one.client_id = labels.get("client_id", one.client_id)
    one.group = labels.get("group_id", one.group)
    target = _FIELD_OF.get(name)
    if target is None:
        return
    try:
        value = float(number)
    except ValueError:
        return
    if value == value and value >= one.values.get(target, float("-inf")):
        one.values[target] = value


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]
