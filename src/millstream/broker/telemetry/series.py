"""What clients have pushed, for the page of metrics: the gauges of the last push, and counters that add up
the growth that clients report.

`org.apache.kafka.consumer.fetch.manager.records.lag.max` becomes
`kafka_client_consumer_fetch_manager_records_lag_max`, a counter ends in `_total`. Labels are the client's id,
the id of its instance, what it says of itself (such as its group) and what it says of the value (such as
topic and partition). Names come from outside: each is reduced to the characters that Prometheus allows, there
are at most `max_series` series in all and `MAX_OF_CLIENT` of one client, and a client that says nothing for
three intervals is forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

from millstream.broker.telemetry.instances import FORGET_AFTER_MS, Instance, instance_name
from millstream.wire.compression import decompress
from millstream.wire.otlp import Kind, read_metrics

MAX_OF_CLIENT = 1000
MAX_CLIENTS = 4096
MAX_NAME = 128
MEMBER_IDS = ("group_member_id", "member_id")  # change while a client runs
_OURS = "org.apache.kafka."
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")


class Series(NamedTuple):
    name: str
    labels: str


class Pushed(NamedTuple):
    """What one push says, ready to be taken over."""

    values: list[tuple[Series, Kind, float]]
    info: str  # labels of what is known about the client
    left_out: int


def read_push(payload: bytes, compression: int, limit: int, instance: Instance, principal: str) -> Pushed:
    """For a thread: it takes some microseconds a value. KafkaError or Malformed if these are no metrics, or
    more than `limit` bytes of them."""
    metrics = read_metrics(decompress(compression, payload, limit), MAX_OF_CLIENT)
    identity = {
        "client_id": instance.attributes["client_id"],
        "client_instance_id": instance_name(instance.id),
    }
    about = {label_name(key): text for key, text in metrics.resource}
    lasting = {name: text for name, text in about.items() if name not in MEMBER_IDS} | identity
    values = []
    for name, kind, value, attributes in metrics.points:
        if value != value:  # not a number: nothing was measured
            continue
        own = {label_name(key): text for key, text in attributes}
        series = Series(metric_name(name, kind is not Kind.GAUGE), label_text(own | lasting))
        values.append((series, kind, value))
    known = {name: text for name, text in instance.attributes.items() if name != "client_source_port"}
    info = about | known | identity | {"principal": principal}
    return Pushed(values, label_text(info), metrics.left_out)


class Client:
    """What one client instance has pushed."""

    __slots__ = ("counters", "forget_at", "gauges", "info")

    def __init__(self) -> None:
        self.info = ""
        self.gauges: dict[Series, float] = {}
        self.counters: dict[Series, float] = {}
        self.forget_at = 0.0

    def __len__(self) -> int:
        return len(self.gauges) + len(self.counters)


class ClientSeries:
    def __init__(self, max_series: int, clock_ms: Callable[[], float]) -> None:
        self.clients: dict[UUID, Client] = {}
        self.count = 0  # of series
        self.pushes = self.refused = self.dropped = 0
        self._max = max_series
        self._clock = clock_ms

    def take(self, instance: Instance, pushed: Pushed) -> None:
        self.pushes += 1
        self.dropped += pushed.left_out
        client = self.clients.get(instance.id)
        if client is None:
            if len(self.clients) >= MAX_CLIENTS:
                self.dropped += len(pushed.values)
                return
            client = self.clients[instance.id] = Client()
        client.info = pushed.info
        client.forget_at = self._clock() + max(FORGET_AFTER_MS, 3 * instance.interval_ms)
        self.count -= len(client.gauges)  # of partitions that it has no longer, perhaps
        client.gauges.clear()
        for series, kind, value in pushed.values:
            values = client.gauges if kind is Kind.GAUGE else client.counters
            before = values.get(series)
            if before is None:
                if self.count >= self._max or len(client) >= MAX_OF_CLIENT:
                    self.dropped += 1
                    continue
                self.count += 1
            values[series] = value + (before or 0) if kind is Kind.DELTA else value

    def forget(self) -> None:
        now = self._clock()
        for id in [id for id, client in self.clients.items() if client.forget_at <= now]:
            self.count -= len(self.clients.pop(id))

    def by_name(self, counters: bool) -> list[tuple[str, list[tuple[str, float]]]]:
        """Names of metrics, each with the values of all clients."""
        found: dict[str, list[tuple[str, float]]] = {}
        for client in self.clients.values():
            for (name, labels), value in (client.counters if counters else client.gauges).items():
                found.setdefault(name, []).append((labels, value))
        return sorted(found.items())


def metric_name(name: str, is_counter: bool) -> str:
    plain = _NOT_IN_NAMES.sub("_", name.removeprefix(_OURS))[:MAX_NAME]
    if is_counter:
        return f"kafka_client_{plain.removesuffix('_total')}_total"
    # A name has one type, and this ending is the counters'.
    return f"kafka_client_{plain}_gauge" if plain.endswith("_total") else f"kafka_client_{plain}"


def label_name(name: str) -> str:
    plain = _NOT_IN_NAMES.sub("_", name)[:MAX_NAME].lstrip("_")
    return plain if plain and not plain[0].isdigit() else f"l_{plain}"


def label_text(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{escaped(text)}"' for name, text in labels.items())


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
