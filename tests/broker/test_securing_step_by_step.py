"""An open broker in use becomes a secured one, in the steps of docs/security.md.

Nothing that was acknowledged is lost, no client is refused on the way, and in the end nobody comes in without
a login.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from millstream.testing import Broker
from tests.client.certificates import Authority
from tests.support.waiting import wait_until

TOPIC, GROUP = "orders", "billing"
# What a restart makes clients say while they connect again.
_PASSING = frozenset(
    {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._TIMED_OUT}
)
_QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20}


class Load:
    """Numbers are written and read all the time, by clients that may be replaced by others."""

    def __init__(self) -> None:
        self.written = 0
        self.delivered: set[int] = set()
        self.read: list[int] = []
        self.refused: list[Any] = []

    @contextmanager
    def writing(self, conf: dict[str, Any]) -> Iterator[None]:
        producer = Producer(
            {**conf, **_QUICK, "enable.idempotence": True, "delivery.timeout.ms": 300_000, "linger.ms": 1}
            | {"error_cb": self._said}
        )
        stop = threading.Event()

        def work() -> None:
            while not stop.wait(0.005):  # the pace of the load
                number, self.written = self.written, self.written + 1
                producer.produce(TOPIC, str(number).encode(), on_delivery=self._delivered)
                producer.poll(0)

        with self._thread(work, stop):
            yield
        assert producer.flush(300) == 0

    @contextmanager
    def reading(self, conf: dict[str, Any]) -> Iterator[None]:
        consumer = Consumer(
            {**conf, **_QUICK, "group.id": GROUP, "auto.offset.reset": "earliest", "error_cb": self._said}
            | {"enable.auto.commit": False}
        )
        consumer.subscribe([TOPIC])
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                message = consumer.poll(0.1)
                if message is None:
                    continue
                if message.error() is not None:
                    self._said(message.error())
                else:
                    self.read.append(int(message.value() or b"-1"))

        try:
            with self._thread(work, stop):
                yield
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()

    @contextmanager
    def _thread(self, work: Any, stop: threading.Event) -> Iterator[None]:
        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.refused.append(error)
        else:
            self.delivered.add(int(message.value()))

    def _said(self, error: Any) -> None:
        if error.code() not in _PASSING:
            self.refused.append(error)

    def goes_on(self) -> None:
        """Until what is written from now on has been read."""
        mark = self.written + 5
        wait_until(lambda: self.refused or any(number >= mark for number in self.read[-5:]))
        assert not self.refused


@pytest.fixture
def ports() -> Iterator[list[int]]:
    """Two, kept for the broker over its restarts."""
    with ExitStack() as stack:
        found = []
        for _ in range(2):
            reserved = stack.enter_context(socket.socket())
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind(("127.0.0.1", 0))
            found.append(reserved.getsockname()[1])
        yield found


def binding(user: str, kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    allow = AclPermissionType.ALLOW
    return AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, allow)


@pytest.mark.timeout(600)
def test_an_open_broker_is_secured_while_it_is_used(tmp_path: Path, ports: list[int]) -> None:
    authority = Authority(tmp_path)
    plain, secured = (f"127.0.0.1:{port}" for port in ports)
    open_conf = {"bootstrap.servers": plain}

    def as_user(name: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": secured,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority.pem),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": name,
            "sasl.password": f"{name}-secret",
        }

    load = Load()
    settings: dict[str, object] = {"listeners": f"PLAINTEXT://{plain}", "offsets.topic.num.partitions": 1}
    with Broker(settings) as broker, ExitStack() as writer, ExitStack() as reader:
        admin = AdminClient(open_conf)
        for done in admin.create_topics([NewTopic(TOPIC, 1, 1)]).values():
            done.result(60)
        writer.enter_context(load.writing(open_conf))
        reader.enter_context(load.reading(open_conf))
        load.goes_on()

        # 1. A listener with TLS and logins beside the open one, and users.
        broker.settings |= {
            "listeners": f"PLAINTEXT://{plain},SASL_SSL://{secured}",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": authority.issue("broker"),
        }
        broker.restart()
        load.goes_on()
        users = [
            UserScramCredentialUpsertion(
                name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), f"{name}-secret".encode()
            )
            for name in ("admin", "writer", "reader", "nobody")
        ]
        for done in admin.alter_user_scram_credentials(users).values():
            done.result(60)

        # 2. Clients move, one after the other.
        reader.close()
        reader.enter_context(load.reading(as_user("reader")))
        load.goes_on()
        writer.close()
        writer.enter_context(load.writing(as_user("writer")))
        load.goes_on()

        # 3. ACLs, which keep nobody out of what has none; all of a resource in one request.
        broker.settings |= {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin",
            "allow.everyone.if.no.acl.found": "true",
        }
        broker.restart()
        load.goes_on()
        acls = [
            binding("writer", ResourceType.TOPIC, TOPIC, AclOperation.WRITE),
            binding("reader", ResourceType.TOPIC, TOPIC, AclOperation.READ),
            binding("reader", ResourceType.GROUP, GROUP, AclOperation.READ),
        ]
        admin = AdminClient(as_user("admin"))
        for done in admin.create_acls(acls).values():
            done.result(60)
        load.goes_on()

        # 4. The open listener goes, and from now on only ACLs allow anything.
        broker.settings |= {
            "listeners": f"SASL_SSL://{secured}",
            "inter.broker.listener.name": "SASL_SSL",
            "allow.everyone.if.no.acl.found": "false",
        }
        broker.restart()
        load.goes_on()
        writer.close()
        wait_until(lambda: len(load.read) >= load.written or load.refused)
        reader.close()

        assert not load.refused
        assert load.delivered == set(range(load.written))
        assert sorted(load.read) == list(range(load.written))
        with pytest.raises(OSError), socket.create_connection(("127.0.0.1", ports[0]), timeout=5):
            pass
        assert TOPIC not in AdminClient(as_user("nobody")).list_topics(timeout=60).topics
        with pytest.raises(KafkaException):
            AdminClient({**as_user("admin"), "sasl.password": "wrong"}).list_topics(timeout=2)
