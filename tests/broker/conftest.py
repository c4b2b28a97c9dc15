"""A broker for the tests of this folder, and a raw connection to speak any version of any API."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from millstream.client.config import ClientConfig
from millstream.client.connection import Connection
from millstream.testing import Broker
from millstream.wire.records import Record, encode_batch


class Wire:
    """One connection, with the few requests that most tests need."""

    def __init__(self, servers: str) -> None:
        host, port = servers.split(":")
        self.connection = Connection(ClientConfig.of(servers), host, int(port))

    def ask(self, api: str, **fields: Any) -> Any:
        return self.connection.request(api, **fields)

    def metadata(self, *names: str, create: bool = False) -> Any:
        """What the broker says about these topics; about all if none is named."""
        return self.ask(
            "metadata",
            topics=[{"topic_id": None, "name": name} for name in names] or None,
            allow_auto_topic_creation=create,
            include_topic_authorized_operations=False,
        )

    def create(self, name: str = "", partitions: int = 1, **configs: str) -> str:
        """A topic; settings are written with underscores for dots."""
        name = name or f"t-{uuid.uuid4().hex[:8]}"
        answer = self.ask(
            "create_topics",
            topics=[
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "assignments": (),
                    "configs": [{"name": k.replace("_", "."), "value": v} for k, v in configs.items()],
                }
            ],
            timeout=10_000,
            validate_only=False,
        )
        assert answer.topics[0].error_code == 0, answer
        return name

    def produce(self, topic: str, *values: bytes, partition: int = 0, acks: int = -1, **batch: Any) -> Any:
        """Write values as one batch; the answer of the partition."""
        now = int(time.time() * 1000)
        data = encode_batch([Record(0, now, b"k", value, ()) for value in values], **batch)
        answer = self.ask(
            "produce",
            up_to=12,
            transactional_id=None,
            acks=acks,
            timeout=5000,
            topic_data=[{"name": topic, "partition_data": [{"index": partition, "records": bytes(data)}]}],
        )
        return answer.responses[0].partition_responses[0]

    def fetch(
        self, topics: dict[str, dict[int, int]], *, session: tuple[int, int] = (0, -1), **limits: Any
    ) -> Any:
        """Fetch {topic: {partition: offset}} by name."""
        return self.ask(
            "fetch",
            up_to=12,
            replica_id=-1,
            max_wait=limits.get("max_wait", 0),
            min_bytes=limits.get("min_bytes", 1),
            max_bytes=limits.get("max_bytes", 50 << 20),
            isolation_level=limits.get("isolation", 0),
            session_id=session[0],
            session_epoch=session[1],
            topics=[
                {
                    "topic": topic,
                    "partitions": [
                        {
                            "partition": partition,
                            "current_leader_epoch": limits.get("epoch", -1),
                            "fetch_offset": offset,
                            "last_fetched_epoch": limits.get("last_epoch", -1),
                            "log_start_offset": -1,
                            "partition_max_bytes": limits.get("partition_max", 1 << 20),
                        }
                        for partition, offset in partitions.items()
                    ],
                }
                for topic, partitions in topics.items()
            ],
            forgotten_topics_data=limits.get("forgotten", ()),
            rack_id="",
        )


@pytest.fixture
def wire(millstream_broker: Broker) -> Iterator[Wire]:
    wire = Wire(millstream_broker.bootstrap_servers)
    yield wire
    wire.connection.close()


@pytest.fixture
def connect() -> Iterator[Callable[[Broker], Wire]]:
    """More connections, to any broker."""
    opened: list[Wire] = []

    def open_one(broker: Broker) -> Wire:
        opened.append(Wire(broker.bootstrap_servers))
        return opened[-1]

    yield open_one
    for wire in opened:
        wire.connection.close()
