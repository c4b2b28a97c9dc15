"""The e-bike plant: its topics, its events, and the sensors that send them.

Each stage of the line has sensors. An event says which bike, which stage, how serious, and a reading; it is
written in Avro by the schema that the registry knows. Now and then a sensor sends rubbish, as sensors do.
"""

from __future__ import annotations

import json
import random
import threading
import time

from millstream.client import Admin, ClientConfig, Cluster, NewTopic, Producer
from millstream.serdes import Encoder, SchemaRegistry
from millstream.wire.murmur2 import partition_for
from millstream.wire.records import Record, encode_batch

EVENTS, AUDIT, ALERTS, TRENDS, DEAD = (
    "plant.events",
    "plant.audit",
    "plant.alerts",
    "plant.trends",
    "plant.dead",
)
STAGE_TABLE, BY_STAGE = "plant.stages", "plant.by-stage"
PARTITIONS = {EVENTS: 4, AUDIT: 2, ALERTS: 3, TRENDS: 1, DEAD: 1, STAGE_TABLE: 2, BY_STAGE: 1}
CRITICAL_PARTITION = 0  # of ALERTS: critical alerts are alone there

# What is in the table: how each is called, and how many alerts in ten seconds are fine.
STAGES = {
    "frame": {"name": "Frame welding", "limit": 250},
    "motor": {"name": "Motor mounting", "limit": 250},
    "battery": {"name": "Battery assembly", "limit": 250},
    "wheels": {"name": "Wheels and brakes", "limit": 250},
    "test_ride": {"name": "Test ride", "limit": 240},
}
LEVELS = ("info", "warning", "critical")
WEIGHTS = (88, 10, 2)

EVENT = json.dumps(
    {
        "type": "record",
        "name": "Event",
        "namespace": "plant",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "bike", "type": "string"},
            {
                "name": "stage",
                "type": {"type": "enum", "name": "Stage", "symbols": list(STAGES)},
            },
            {"name": "level", "type": {"type": "enum", "name": "Level", "symbols": list(LEVELS)}},
            {"name": "reading", "type": "double"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
)


def create_topics(servers: str) -> None:
    """All topics, and the table of stages."""
    compacted = (TRENDS, STAGE_TABLE, BY_STAGE)
    topics = [
        NewTopic(name, count, 1, {"cleanup.policy": "compact"} if name in compacted else {})
        for name, count in PARTITIONS.items()
    ]
    with Cluster(ClientConfig.of(servers)) as cluster:
        for outcome in Admin(cluster).create_topics(topics).values():
            if isinstance(outcome, Exception):
                raise outcome
        now = round(time.time() * 1000)
        rows: dict[tuple[str, int], list[Record]] = {}
        for stage, row in STAGES.items():
            topic_partition = (STAGE_TABLE, partition_for(stage.encode(), PARTITIONS[STAGE_TABLE]))
            record = Record(0, now, stage.encode(), json.dumps(row).encode())
            rows.setdefault(topic_partition, []).append(record)
        Producer(cluster).send_batches(
            {topic_partition: encode_batch(records) for topic_partition, records in rows.items()}
        )


class Sensors(threading.Thread):
    """Sends `rate` events a second until it is told to stop, and keeps count of what was acknowledged."""

    def __init__(self, servers: str, registry: str, rate: int, seed: int = 17) -> None:
        super().__init__(name="sensors", daemon=True)
        self._servers = servers
        self._rate = rate
        self._random = random.Random(seed)
        self._encoder = Encoder(SchemaRegistry(registry), EVENT)
        self._encoder.encode(EVENTS, self._event(0))  # registers the schema
        self._end = threading.Event()
        self.levels: dict[str, str] = {}  # acknowledged events: id -> level
        self.rubbish: set[bytes] = set()  # acknowledged records that are no events
        self.failure: BaseException | None = None

    def finish(self) -> None:
        self._end.set()
        self.join()

    def run(self) -> None:
        try:
            with Cluster(ClientConfig.of(self._servers)) as cluster:
                producer = Producer(cluster)
                began, number = time.monotonic(), 0
                while not self._end.wait(0.05):
                    due = round((time.monotonic() - began) * self._rate) - number
                    if due > 0:
                        number += self._send(producer, number, min(due, self._rate))
        except BaseException as error:
            self.failure = error

    def _send(self, producer: Producer, first: int, count: int) -> int:
        """One batch for each partition. Returns when all are acknowledged, however often that takes."""
        shares: dict[int, list[Record]] = {}
        levels: dict[str, str] = {}
        rubbish: set[bytes] = set()
        now = round(time.time() * 1000)
        for number in range(first, first + count):
            event = self._event(number)
            key = event["bike"].encode()
            if self._random.random() < 0.002:
                value: bytes | None = b"%d volts?!" % number
                rubbish.add(value or b"")
            else:
                value = self._encoder.encode(EVENTS, event)
                levels[event["id"]] = event["level"]
            shares.setdefault(partition_for(key, PARTITIONS[EVENTS]), []).append(
                Record(0, now, key, value, ())
            )
        producer.send_batches({(EVENTS, partition): encode_batch(rows) for partition, rows in shares.items()})
        self.levels |= levels
        self.rubbish |= rubbish
        return count

    def _event(self, number: int) -> dict[str, object]:
        pick = self._random
        return {
            "id": f"event-{number:08}",
            "bike": f"bike-{pick.randrange(200):03}",
            "stage": pick.choice(list(STAGES)),
            "level": pick.choices(LEVELS, WEIGHTS)[0],
            "reading": round(pick.gauss(50, 10), 2),
            "at": round(time.time() * 1000),
        }
