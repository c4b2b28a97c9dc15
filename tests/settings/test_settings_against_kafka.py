"""Our table and our answers, compared with what Apache Kafka 4.2 said of its own (see RecordKafka.java)."""

import json
from pathlib import Path
from typing import Any

import pytest

from millstream.settings.config_def import BROKER, DIFFERENT, TOPIC, base_config_key, kafka_only
from millstream.settings.properties import read_properties
from millstream.settings.resolve import BrokerSettings, ConfigEntry
from millstream.settings.validate import validate_broker_config, validate_topic_config
from millstream.settings.values import InvalidSetting

HERE = Path(__file__).parent
FACTS = json.loads((HERE / "kafka_facts.json").read_text())
ANSWERS = json.loads((HERE / "kafka_answers.json").read_text())
BROKER_FACTS = {row[0]: row for row in FACTS["broker"]}
TOPIC_FACTS = {row[0]: row for row in FACTS["topic"]}

NEWER_THAN_THE_FACTS = {
    "group.consumer.assignment.interval.ms",
    "group.consumer.max.assignment.interval.ms",
    "group.consumer.min.assignment.interval.ms",
}
# Kafka had these up to 3.9, with the same types and defaults.
OLDER_THAN_THE_FACTS = {
    "broker.id.generation.enable",
    "reserved.broker.max.id",
    "zookeeper.connect",
    "zookeeper.connection.timeout.ms",
    "zookeeper.session.timeout.ms",
    "zookeeper.set.acl",
    "zookeeper.ssl.cipher.suites",
    "zookeeper.ssl.client.enable",
    "zookeeper.ssl.enabled.protocols",
    "zookeeper.ssl.endpoint.identification.algorithm",
    "zookeeper.ssl.keystore.location",
    "zookeeper.ssl.keystore.password",
    "zookeeper.ssl.keystore.type",
    "zookeeper.ssl.truststore.location",
    "zookeeper.ssl.truststore.password",
    "zookeeper.ssl.truststore.type",
}
# Not in KafkaConfig's own table: plug-ins and the dynamic quota settings have them.
ELSEWHERE_IN_KAFKA = {
    "allow.everyone.if.no.acl.found",
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "super.users",
}
LEFT_OUT_TOPIC = {
    "local.retention.bytes",
    "local.retention.ms",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
}


@pytest.mark.parametrize("name", sorted(set(BROKER) & set(BROKER_FACTS) - set(DIFFERENT)))
def test_broker_setting_is_kafkas(name: str) -> None:
    setting = BROKER[name]
    ours = [
        name,
        setting.type.name,
        setting.default,
        setting.importance.name,
        setting.hidden,
        setting.mode.value,
    ]
    assert ours == BROKER_FACTS[name]


@pytest.mark.parametrize("name", sorted(TOPIC))
def test_topic_setting_is_kafkas(name: str) -> None:
    setting = TOPIC[name]
    synonyms = [synonym.name for synonym in setting.synonyms]
    ours = [name, setting.type.name, setting.default, setting.importance.name, setting.hidden, synonyms]
    assert ours == TOPIC_FACTS[name]


def test_differences_are_real() -> None:
    for name in DIFFERENT:
        setting = BROKER[name]
        fact = BROKER_FACTS[name]
        assert [setting.default, setting.mode.value] != [fact[2], fact[5]], name


def test_every_name_of_kafka_is_known_or_explained() -> None:
    assert [name for name in BROKER_FACTS if name not in BROKER and not kafka_only(name)] == []
    assert set(TOPIC_FACTS) - set(TOPIC) == LEFT_OUT_TOPIC


def test_names_of_our_own_say_so() -> None:
    elsewhere = ELSEWHERE_IN_KAFKA | NEWER_THAN_THE_FACTS | OLDER_THAN_THE_FACTS
    extra = set(BROKER) - set(BROKER_FACTS) - elsewhere
    assert all(name.startswith("millstream.") for name in extra)


def test_synonyms_of_topics_exist_and_have_the_same_default() -> None:
    settings = BrokerSettings()
    for setting in TOPIC.values():
        assert all(synonym.name in BROKER for synonym in setting.synonyms)
        assert settings.topic_values({})[setting.name] == setting.default_value()


# Answers of a running broker

CLUSTER_DEFAULT = {
    "log.retention.ms": "2000000",
    "log.cleaner.threads": "2",
    "max.connections": "999",
    # Kafka 4.2 writes this itself when a cluster is formatted.
    "min.insync.replicas": "1",
}
THIS_BROKER = {
    "log.cleaner.threads": "2",
    "log.segment.bytes": "3145728",
    "log.cleaner.io.max.bytes.per.second": "1e7",
    "my.dynamic.unknown": "5",
    "listener.name.plaintext.max.connections": "55",
    "listener.name.plaintext.ssl.truststore.password": "secret",
}


@pytest.fixture
def at_start() -> BrokerSettings:
    # Even before anybody changes a thing, Kafka has that one dynamic default.
    settings = BrokerSettings(read_properties(str(HERE / "recorded.properties")))
    return settings.with_dynamic({"min.insync.replicas": "1"}, {})


@pytest.fixture
def changed(at_start: BrokerSettings) -> BrokerSettings:
    return at_start.with_dynamic(CLUSTER_DEFAULT, THIS_BROKER)


SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": 1,
    "DYNAMIC_BROKER_CONFIG": 2,
    "DYNAMIC_DEFAULT_BROKER_CONFIG": 3,
    "STATIC_BROKER_CONFIG": 4,
    "DEFAULT_CONFIG": 5,
}


def recorded(heading: str, leave_out: set[str]) -> dict[str, list[Any]]:
    rows = {}
    for name, value, source, read_only, sensitive, kind, synonyms in ANSWERS[heading]:
        if name not in leave_out:
            chain = [[other, text, SOURCES[source]] for other, text, source in synonyms]
            rows[name] = [value, SOURCES[source], read_only, sensitive, kind, chain]
    return rows


def ours(entries: list[ConfigEntry], leave_out: set[str]) -> dict[str, list[Any]]:
    return {
        e.name: [
            e.value,
            e.source,
            e.read_only,
            e.sensitive,
            e.type.name,
            [[s.name, s.value, s.source] for s in e.synonyms],
        ]
        for e in entries
        if e.name not in leave_out
    }


@pytest.mark.parametrize("when", ["static", "dynamic"])
def test_describe_broker(when: str, at_start: BrokerSettings, changed: BrokerSettings) -> None:
    settings = at_start if when == "static" else changed
    not_ours = {name for name in BROKER_FACTS if name not in BROKER}
    leave_out = not_ours | set(DIFFERENT) | {name for name in BROKER if name not in BROKER_FACTS}
    # Kafka forgets the minutes when the milliseconds are set dynamically, and shows null for them. We show
    # them.
    if when == "dynamic":
        leave_out.add("log.retention.minutes")
        assert settings.text("log.retention.minutes") == "60"
    assert ours(settings.describe_broker(), leave_out) == recorded(f"{when} broker", leave_out)


def test_describe_different_settings_apart_from_their_defaults(at_start: BrokerSettings) -> None:
    entries = {entry.name: entry for entry in at_start.describe_broker()}
    for name, (value, source, _, sensitive, kind, chain) in recorded("static broker", set()).items():
        if name in DIFFERENT and source == 4:
            entry = entries[name]
            assert [entry.value, entry.source, entry.sensitive, entry.type.name] == [
                value,
                source,
                sensitive,
                kind,
            ]
            assert list(entry.synonyms[0]) == chain[0]


def test_describe_dynamic_default(changed: BrokerSettings) -> None:
    assert ours(changed.describe_broker_default(), set()) == recorded("dynamic default", set())


def test_describe_topic(at_start: BrokerSettings, changed: BrokerSettings) -> None:
    overrides = {"retention.ms": "1000", "cleanup.policy": "compact"}
    for heading, entries in (
        ("static plain", at_start.describe_topic({})),
        ("dynamic plain", changed.describe_topic({})),
        ("dynamic overridden", changed.describe_topic(overrides)),
    ):
        assert ours(entries, set()) == recorded(heading, LEFT_OUT_TOPIC), heading


@pytest.mark.parametrize(("kind", "resource", "name", "value", "refusal"), ANSWERS["changes"])
def test_refusal(kind: str, resource: str, name: str, value: str, refusal: str | None) -> None:
    message = None
    try:
        if kind == "TOPIC":
            validate_topic_config(name, value)
        else:
            validate_broker_config(name, value, per_broker=bool(resource))
    except InvalidSetting as error:
        message = error.message
    # Which of Scala's set classes it was is not worth copying.
    assert message == (refusal and refusal.replace("HashSet(", "Set("))


def test_types_of_prefixed_names() -> None:
    prefixed = base_config_key("listener.name.sasl_ssl.plain.sasl.jaas.config")
    assert prefixed is BROKER["sasl.jaas.config"]
    assert base_config_key("listener.name.a.ssl.keystore.location") is BROKER["ssl.keystore.location"]
    assert base_config_key("listener.name.a.b.ssl.keystore.location") is None
    assert base_config_key("listener.name.a") is None
