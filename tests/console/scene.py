"""A small shop, so that pages have something to show: topics of all kinds, schemas, groups, a pipeline, and a
writer."""

import json
import random
import threading
import time

from millstream.client import LATEST, Admin, ClientConfig, Cluster, NewTopic, Producer, list_offsets
from millstream.client.groups import Groups
from millstream.serdes import Encoder, SchemaRegistry
from millstream.spark.runner.status_records import TOPIC as PIPELINES
from millstream.spark.runner.status_records import QueryStatus, Status, status_key, write_status
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import Record
from tests.support.waiting import wait_until

ORDER_1 = """{"type":"record","name":"Order","namespace":"shop","fields":[
 {"name":"id","type":"long"},{"name":"customer","type":"string"},{"name":"total","type":"double"}]}"""
ORDER_2 = ORDER_1.replace(
    '{"name":"total","type":"double"}',
    '{"name":"total","type":"double"},{"name":"currency","type":"string","default":"EUR"}',
)
READING = (
    'syntax = "proto3";\npackage plant;\n\nmessage Reading {\n  string sensor = 1;\n  double value = 2;\n}\n'
)
TOPICS = {
    "shop.orders": (6, {"retention.ms": "604800000"}),
    "shop.payments": (3, {}),
    "shop.customers": (1, {"cleanup.policy": "compact"}),
    "plant.readings": (12, {"retention.ms": "86400000"}),
    "plant.alarms": (3, {}),
    "web.clicks": (6, {}),
    "junk": (1, {"max.message.bytes": "3000000"}),
    PIPELINES: (1, {"cleanup.policy": "compact"}),
}


def now_ms() -> int:
    return round(time.time() * 1000)


class Scene:
    """Fills a cluster, and goes on writing until it is closed."""

    def __init__(self, bootstrap: str, registry_url: str) -> None:
        self._cluster = Cluster(ClientConfig.of(bootstrap))
        self._producer = Producer(self._cluster)
        self._random = random.Random(7)
        self._number = 0
        self._stop = threading.Event()
        self._make_topics()
        registry = SchemaRegistry(registry_url)
        registry.register("shop.orders-value", ORDER_1)
        registry.register("plant.readings-value", READING, "PROTOBUF")
        registry.register(
            "shop.customers-value", '{"type":"object","properties":{"name":{"type":"string"}}}', "JSON"
        )
        self._orders = Encoder(registry, ORDER_2)
        self._fill()
        self._groups()
        self._pipelines()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._cluster.close()

    def _make_topics(self) -> None:
        wanted = [NewTopic(name, count, 1, configs) for name, (count, configs) in TOPICS.items()]
        for outcome in Admin(self._cluster).create_topics(wanted).values():
            if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.topic_already_exists:
                raise outcome
        wait_until(lambda: set(TOPICS) <= set(Admin(self._cluster).topic_names()))

    def _fill(self) -> None:
        customers = [
            {
                "name": f"Customer {i}",
                "email": f"c{i}@example.org",
                "since": 2010 + i % 15,
                "tags": ["mail", "shop"],
            }
            for i in range(80)
        ]
        self._send(
            "shop.customers", 0, [(f"c{i}", json.dumps(one).encode()) for i, one in enumerate(customers)]
        )
        self._send("junk", 0, [("big", b'{"x":"' + b"a" * 1_000_000 + b'"}')])
        self._send(
            "junk",
            0,
            [("<script>alert(1)</script>", b"<img src=x onerror=alert(1)>"), ("bytes", bytes(range(256)))],
        )
        for _ in range(15):
            self._round()

    def _round(self) -> None:
        for _ in range(3):
            self._number += 1
            order = {
                "id": self._number,
                "customer": f"c{self._number % 80}",
                "total": round(self._random.uniform(5, 400), 2),
                "currency": "EUR",
            }
            encoded = self._orders.encode("shop.orders", order)
            self._send("shop.orders", self._number % 6, [(f"c{self._number % 80}", encoded)])
            paid = {
                "order": self._number,
                "card": "4111111111111111",
                "status": self._random.choice(["PAID", "PAID", "DECLINED"]),
            }
            self._send("shop.payments", self._number % 3, [(str(self._number), json.dumps(paid).encode())])
        clicks = [
            (None, json.dumps({"page": f"/p/{self._random.randint(1, 50)}"}).encode()) for _ in range(20)
        ]
        self._send("web.clicks", self._random.randrange(6), clicks)

    def _send(self, topic: str, partition: int, pairs: list[tuple[str | None, bytes | None]]) -> None:
        headers = (("source", b"scene"),)
        records = [
            Record(0, now_ms(), None if key is None else key.encode(), value, headers) for key, value in pairs
        ]
        self._producer.send(topic, partition, records)

    def _groups(self) -> None:
        groups = Groups(self._cluster)
        ends = list_offsets(self._cluster, {("shop.orders", p): LATEST for p in range(6)})
        groups.commit(
            "billing", {topic_partition: max(0, found.offset - 2) for topic_partition, found in ends.items()}
        )
        groups.commit("reports", dict.fromkeys(ends, 0))
        groups.commit("mailing", {("shop.customers", 0): 31})

    def _pipelines(self) -> None:
        now = now_ms()
        query = QueryStatus(
            "orders_per_minute",
            "running",
            212,
            340,
            181_204,
            61.5,
            910.2,
            12,
            state_rows=1440,
            state_bytes=921_600,
        )
        other = QueryStatus(
            "late_payments",
            "running",
            198,
            520,
            90_112,
            58.0,
            240.7,
            310,
            state_rows=880,
            state_bytes=610_000,
            late_rows=4,
        )
        running = Status(
            "shop-figures",
            "r1",
            "running",
            host="worker-1",
            pid=4242,
            started=now - 3_600_000,
            updated=now,
            restarts=1,
            queries=[query, other],
        )
        broken = Status(
            "plant-alarms",
            "r2",
            "failed",
            host="worker-2",
            pid=77,
            started=now - 90_000,
            updated=now - 30_000,
            last_error="AnalysisException: column `celsius` cannot be resolved",
        )
        for one in (running, broken):
            record = Record(0, now, status_key(one.pipeline), write_status(one))
            self._producer.send(PIPELINES, 0, [record])

    def _write(self) -> None:
        while not self._stop.wait(self._random.uniform(0.05, 0.3)):
            try:
                self._round()
                if self._number % 60 < 3:
                    self._pipelines()
            except KafkaError:
                return
