"""The audit log: what is noted, what is not, and that nobody waits for it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from millstream.broker.audit import log as audit_log
from millstream.broker.audit import requests as audit_requests
from millstream.broker.audit.log import Audit
from millstream.broker.audit.requests import RESOURCES, resources
from millstream.broker.audit.sinks import FileSink
from millstream.broker.authorizer import NEEDS
from millstream.testing import Broker, BrokerFailed
from millstream.wire.acls import Operation, ResourceType
from tests.support.secured import PASSWORD, Secured
from tests.support.waiting import wait_until

LISTENER = "SASL_PLAINTEXT"
Events = Callable[[], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
def secured(path: Path) -> Iterator[Secured]:
    settings: dict[str, object] = {
        "authorizer__class__name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super__users": "User:ANONYMOUS",
        "millstream__audit__log": f"file:{path}",
    }
    with Secured(path.parent, **settings) as secured:
        secured.add_user()
        yield secured
        assert "Traceback" not in secured.broker.log
    assert PASSWORD not in path.read_text()


@pytest.fixture
def events(path: Path) -> Events:
    return lambda: [json.loads(line) for line in path.read_text().splitlines()]


def one(events: Events, **fields: Any) -> dict[str, Any]:
    """The first event with these fields, as soon as there is one."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        found[:] = [event for event in events() if fields.items() <= event.items()]
        return bool(found)

    wait_until(there)
    return found[0]


def test_changes_are_noted_with_names_and_without_values(secured: Secured, events: Events) -> None:
    admin = AdminClient({"bootstrap.servers": secured.servers["PLAINTEXT"], "client.id": "the-admin"})
    admin.create_topics([NewTopic("audited", 1)])["audited"].result(60)
    event = one(events, action="CreateTopics", resources=["Topic:audited"])
    assert set(event) == {
        *("time", "broker", "event", "principal", "host", "client_id", "listener", "action"),
        *("resources", "verdict"),
    }
    assert event["time"].endswith("Z")
    assert (event["principal"], event["host"]) == ("User:ANONYMOUS", "127.0.0.1")
    assert (event["event"], event["verdict"], event["client_id"]) == ("request", "allowed", "the-admin")

    again = admin.create_topics([NewTopic("audited", 1)])["audited"]
    with pytest.raises(KafkaException):
        again.result(60)
    assert one(events, action="CreateTopics", verdict="failed")["errors"] == ["TOPIC_ALREADY_EXISTS"]

    entry = ConfigEntry("retention.ms", "987654321", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "audited", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)
    one(events, action="IncrementalAlterConfigs", resources=["Topic:audited retention.ms"])
    change = UserScramCredentialUpsertion(
        "carol", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), b"carols-secret", b"the-salt"
    )
    admin.alter_user_scram_credentials([change])["carol"].result(60)
    one(events, action="AlterUserScramCredentials", resources=["User:carol SCRAM-SHA-512"])
    text = json.dumps(events())
    for secret in ("987654321", "carols-secret", "the-salt"):
        assert secret not in text


def test_logins_and_refusals_are_noted(secured: Secured, events: Events) -> None:
    alice = secured.rdkafka(LISTENER, "SCRAM-SHA-512")
    failed: list[str] = []
    producer = Producer({**alice, "message.timeout.ms": 30_000, "log_level": 0})
    producer.produce("audited-2", b"v", on_delivery=lambda error, _: failed.append(error.name()))
    producer.flush(60)
    assert failed == ["TOPIC_AUTHORIZATION_FAILED"]
    login = one(events, event="login", verdict="allowed")
    assert (login["principal"], login["action"], login["listener"]) == (
        "User:alice",
        "SCRAM-SHA-512",
        LISTENER,
    )
    refusal = one(events, event="authorization", principal="User:alice")
    assert (refusal["resources"], refusal["verdict"]) == (["Topic:audited-2"], "denied")

    stranger = AdminClient({**alice, "sasl.password": "guessed-word", "log_level": 0})
    with pytest.raises(KafkaException):
        stranger.list_topics(timeout=5)
    event = one(events, event="login", verdict="denied")
    assert event["principal"] is None
    assert "alice" in event["reason"]
    assert "guessed-word" not in json.dumps(events())


def test_the_file_is_the_brokers_alone_and_may_be_moved_away(
    secured: Secured, path: Path, events: Events
) -> None:
    assert path.stat().st_mode & 0o777 == 0o600
    path.rename(path.with_suffix(".1"))
    admin = AdminClient({"bootstrap.servers": secured.servers["PLAINTEXT"]})
    admin.create_topics([NewTopic("rotated", 1)])["rotated"].result(60)
    wait_until(path.exists)
    one(events, action="CreateTopics", resources=["Topic:rotated"])


def test_a_topic_takes_the_events() -> None:
    with Broker({"millstream.audit.log": "topic:__audit"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("first", 1)])["first"].result(60)
        admin.delete_topics(["first"])["first"].result(60)
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
            }
        )
        consumer.subscribe(["__audit"])
        found: list[dict[str, Any]] = []

        def both() -> bool:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append(json.loads(message.value()))
            return len(found) >= 2

        wait_until(both)
        consumer.close()
    assert [(event["action"], event["resources"]) for event in found] == [
        ("CreateTopics", ["Topic:first"]),
        ("DeleteTopics", ["Topic:first"]),
    ]


@pytest.mark.parametrize("value", ["syslog", "file:", "topic:a/b", "file:/no/such/folder/audit.log"])
def test_a_place_that_cannot_be_stops_the_start(value: str) -> None:
    with (
        pytest.raises(BrokerFailed, match=r"millstream\.audit\.log"),
        Broker({"millstream.audit.log": value}),
    ):
        pass


def test_every_request_that_changes_something_is_noted() -> None:
    """Whoever serves another API says here, or in `requests`, what the audit log says about it."""
    reads = {0, 1, 2, 3, 9, 10, 15, 16, 17, 18, 23, 29, 32, 35, 36, 41, 46, 48, 50, 55, 60, 61, 65, 66, 69}
    reads |= {71, 72, 74, 75}
    of_clients = {8, 11, 12, 13, 14, 22, 24, 25, 26, 28, 68}  # groups and transactions of their own
    between_brokers = {27, 56, 58, 62, 63, 67}
    assert set(RESOURCES) == set(NEEDS) - reads - of_clients - between_brokers


def test_of_a_long_request_a_bounded_part_is_noted() -> None:
    """However many names there are, and however long: the loop makes these texts."""
    name = "x" * 30_000
    many = 10_000
    quota = SimpleNamespace(
        entity=(SimpleNamespace(entity_type="user", entity_name=name),) * many,
        ops=(SimpleNamespace(key=name),) * many,
    )
    config = SimpleNamespace(resource_type=2, resource_name="t", configs=(SimpleNamespace(name=name),) * many)
    bound = 2 * audit_requests.MAX_RESOURCES * (audit_requests.MAX_TEXT + 10)
    for api, request in (
        (49, SimpleNamespace(entries=(quota,) * many)),
        (44, SimpleNamespace(resources=(config,) * many)),
    ):
        made = len(next(iter(RESOURCES[api](request))))
        assert made < bound
        lengths = [len(text) for text in resources(api, request)]
        assert lengths == [audit_requests.MAX_TEXT] * audit_requests.MAX_RESOURCES


def test_of_folders_without_topics_some_are_passed_over() -> None:
    passed = []

    def folders() -> Iterator[Any]:
        for number in range(10_000):
            passed.append(number)
            yield SimpleNamespace(topics=())

    assert resources(34, SimpleNamespace(dirs=folders())) == []
    assert len(passed) <= audit_requests.MAX_RESOURCES


# --- the queue ----------------------------------------------------------------------------------------------


class Stuck:
    """A sink that writes when it is told to."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.broken = True

    async def write(self, lines: Sequence[bytes]) -> None:
        if self.broken:
            raise OSError("no space left")
        self.lines += map(json.loads, lines)

    async def close(self) -> None:
        pass


def denied(audit: Audit, name: str) -> None:
    audit.denied("User:eve", "10.0.0.9", Operation.READ, ResourceType.TOPIC, name, "Fetch")


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (what it waits for is a number)
        await asyncio.sleep(0.01)


def test_what_cannot_be_written_waits_and_what_is_too_much_is_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit_log, "MAX_WAITING", 3)
    monkeypatch.setattr(audit_log, "PERIOD", 0.01)

    async def scenario() -> tuple[Audit, Stuck]:
        sink = Stuck()
        audit = Audit(sink, lambda: 1)
        audit.start()
        for name in "abcde":
            denied(audit, name)
        await until(lambda: audit.failures > 0)
        sink.broken = False
        await until(lambda: audit.written == 3)
        await audit.stop()
        return audit, sink

    audit, sink = asyncio.run(scenario())
    assert [line["resources"] for line in sink.lines] == [["Topic:a"], ["Topic:b"], ["Topic:c"]]
    assert audit.dropped == 2
    assert "no space left" in caplog.text


def test_equal_refusals_are_one_event_with_a_count() -> None:
    async def scenario() -> list[dict[str, Any]]:
        sink = Stuck()
        sink.broken = False
        audit = Audit(sink, lambda: 1)
        audit.start()
        for _ in range(1000):
            denied(audit, "orders")
        await audit.stop()
        return sink.lines

    first, rest = asyncio.run(scenario())
    assert "count" not in first
    assert rest["count"] == 999


def test_a_request_whose_event_cannot_be_made_is_served(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> Audit:
        audit = Audit(Stuck(), lambda: 1)
        api = SimpleNamespace(key=19, name="CreateTopics", handler=lambda call: "answer", forwardable=False)
        audit.watch([api])  # type: ignore[list-item]
        call = SimpleNamespace(is_forwarded=False, connection=SimpleNamespace(peer="somebody"))
        assert api.handler(call) == "answer"  # type: ignore[arg-type]
        return audit

    assert asyncio.run(scenario()).dropped == 1
    assert "missing from the audit log" in caplog.text


def test_a_full_disk_leaves_no_half_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.log"
    real = os.write

    async def scenario() -> None:
        sink = FileSink(path)
        await sink.write([b"first"])
        pieces = iter([lambda fd, data: real(fd, data[:3]), None])

        def write(fd: int, data: memoryview) -> int:
            piece = next(pieces)
            if piece is None:
                raise OSError("no space left")
            return piece(fd, data)

        with monkeypatch.context() as patched:
            patched.setattr(os, "write", write)
            with pytest.raises(OSError, match="no space"):
                await sink.write([b"second"])
        await sink.write([b"second"])
        await sink.close()

    asyncio.run(scenario())
    assert path.read_text() == "first\nsecond\n"
