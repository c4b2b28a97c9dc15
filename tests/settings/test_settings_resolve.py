import subprocess
import sys
from pathlib import Path

import pytest

import millstream
from millstream.settings.config_def import BROKER, TOPIC
from millstream.settings.log_config import LogConfig
from millstream.settings.resolve import BrokerSettings, ConfigEntry, ConfigSource
from millstream.settings.values import InvalidSetting, Password


def test_defaults_of_topics_are_those_of_log_config() -> None:
    settings = BrokerSettings()
    assert settings.default_log_config == LogConfig()
    assert settings.topic({}) is settings.default_log_config


def test_typed_values() -> None:
    settings = BrokerSettings({"log.dirs": "a, b,a", "ssl.key.password": "x", "broker.rack": " r1 "})
    assert settings.integer("num.partitions") == 1
    assert settings.boolean("auto.create.topics.enable") is True
    assert settings.number("log.cleaner.io.buffer.load.factor") == 0.9
    assert settings.string("broker.rack") == "r1"
    assert settings.string("inter.broker.listener.name") == ""
    assert settings.items("advertised.listeners") == ()
    assert settings.value("advertised.listeners") is None
    assert settings.value("ssl.key.password") == Password("x")
    assert settings.log_dirs == ("a", "b")
    assert BrokerSettings().log_dirs == ("millstream-data",)
    with pytest.raises(KeyError):
        settings.value("no.such")


@pytest.mark.parametrize(
    ("static", "retention"),
    [
        ({}, 168 * 3_600_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "5"}, 5),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-7"}, -1),
        ({"log.retention.ms": "-2", "log.retention.hours": "1"}, -1),
    ],
)
def test_retention_units(static: dict[str, str], retention: int) -> None:
    assert BrokerSettings(static).default_log_config.retention_ms == retention


def test_other_units() -> None:
    config = BrokerSettings({"log.roll.hours": "1", "log.roll.jitter.hours": "2"}).default_log_config
    assert (config.segment_ms, config.segment_jitter_ms) == (3_600_000, 7_200_000)
    config = BrokerSettings({"log.roll.hours": "1", "log.roll.ms": "9"}).default_log_config
    assert config.segment_ms == 9
    assert BrokerSettings({"log.flush.scheduler.interval.ms": "7"}).default_log_config.flush_ms == 7
    both = {"log.flush.scheduler.interval.ms": "7", "log.flush.interval.ms": "8"}
    assert BrokerSettings(both).default_log_config.flush_ms == 8


def test_topic_overrides() -> None:
    settings = BrokerSettings({"log.segment.bytes": "2000000"})
    config = settings.topic({"cleanup.policy": "compact, delete", "retention.ms": " 5 "})
    assert config.cleanup_policy == {"compact", "delete"}
    assert config.compact and config.delete
    assert (config.retention_ms, config.segment_bytes) == (5, 2_000_000)
    assert settings.topic({"cleanup.policy": ""}).cleanup_policy == frozenset()
    assert settings.topic({"internal.segment.bytes": "100"}).segment_bytes == 100
    settings.topic({"leader.replication.throttled.replicas": "*"})
    for overrides in ({"x": "1"}, {"retention.ms": "x"}, {"remote.storage.enable": "true"}):
        with pytest.raises(InvalidSetting):
            settings.topic(overrides)


def test_compaction_lags_must_fit_together_with_the_brokers() -> None:
    settings = BrokerSettings({"log.cleaner.min.compaction.lag.ms": "100"})
    settings.validate_topic({"max.compaction.lag.ms": "100"})
    with pytest.raises(InvalidSetting) as caught:
        settings.validate_topic({"max.compaction.lag.ms": "50"})
    expected = "conflict topic config setting min.compaction.lag.ms (100) > max.compaction.lag.ms (50)"
    assert caught.value.message == expected


def test_dynamic_comes_before_static_and_this_broker_first() -> None:
    settings = BrokerSettings({"message.max.bytes": "1", "log.retention.hours": "1"})
    assert settings.default_log_config.max_message_bytes == 1
    second = settings.with_dynamic({"message.max.bytes": "2", "log.retention.ms": "20"}, {})
    assert second.default_log_config.max_message_bytes == 2
    assert second.default_log_config.retention_ms == 20
    third = second.with_dynamic({"message.max.bytes": "2"}, {"message.max.bytes": "3"})
    assert third.default_log_config.max_message_bytes == 3
    assert third.default_log_config.retention_ms == 3_600_000
    assert third.topic({"max.message.bytes": "4"}).max_message_bytes == 4
    assert settings.integer("message.max.bytes") == 1, "the first is unchanged"


def test_unusable_dynamic_values_are_left_out_and_told() -> None:
    settings = BrokerSettings().with_dynamic(
        {"message.max.bytes": "x", "listener.name.a.ssl.keystore.type": "JKS"},
        {"num.partitions": "9", "unknown": "1"},
    )
    assert settings.default_log_config == LogConfig()
    assert settings.integer("num.partitions") == 1
    names = {problem.name for problem in settings.problems}
    assert names == {"message.max.bytes", "listener.name.a.ssl.keystore.type", "num.partitions"}


@pytest.mark.parametrize("prefix", ["", "listener.name.a."])
@pytest.mark.parametrize("name", ["max.connections", "max.connection.creation.rate"])
def test_nobody_is_locked_out_while_the_broker_runs(prefix: str, name: str) -> None:
    settings = BrokerSettings()
    for value, fine in (("1", True), ("0", False)):
        for overrides in (({prefix + name: value}, {}), ({}, {prefix + name: value})):
            assert (not settings.with_dynamic(*overrides).problems) is fine


def test_dynamic_values_must_fit_together() -> None:
    settings = BrokerSettings()
    settings.validate_dynamic({"log.cleaner.threads": "2"}, {"max.connections.per.ip": "5"})
    with pytest.raises(InvalidSetting, match="more than 1 MB"):
        settings.validate_dynamic({"log.cleaner.threads": "1000"}, {})
    with pytest.raises(InvalidSetting, match="overrides"):
        settings.validate_dynamic({}, {"max.connections.per.ip": "0"})
    with pytest.raises(InvalidSetting, match="dynamically"):
        settings.validate_dynamic({}, {"num.partitions": "5"})


def test_a_log_opens_whatever_its_settings_come_to_together() -> None:
    settings = BrokerSettings().with_dynamic({"log.cleaner.min.compaction.lag.ms": "100"}, {})
    assert settings.topic({"max.compaction.lag.ms": "50"}).min_compaction_lag_ms == 100
    both = settings.with_dynamic(
        {"log.cleaner.min.compaction.lag.ms": "100"}, {"log.cleaner.max.compaction.lag.ms": "50"}
    )
    assert both.default_log_config.max_compaction_lag_ms == 50
    with pytest.raises(InvalidSetting, match="at least that of"):
        settings.validate_dynamic(both.cluster_default, both.this_broker)


@pytest.mark.parametrize(
    "static",
    [
        {"num.partitions": "0"},
        {"listener.name.a.max.connections": "x"},
        {"node.id": "1", "broker.id": "2"},
        {"process.roles": "controller"},
        {"inter.broker.listener.name": "A", "security.inter.broker.protocol": "SSL"},
        {"max.connections.per.ip": "0"},
        {"queued.max.request.bytes": "5"},
        {"log.cleaner.dedupe.buffer.size": "10"},
        {"log.cleaner.threads": "0"},
        {"log.cleaner.dedupe.buffer.size": str(2 << 20), "log.cleaner.threads": "2"},
        {"replica.fetch.wait.max.ms": "40000"},
        {"group.consumer.session.timeout.ms": "1"},
        {"group.consumer.heartbeat.interval.ms": "20000"},
        {"group.min.session.timeout.ms": "2000000"},
        {"log.retention.hours": "0"},
        {"log.retention.ms": "0"},
        {"log.roll.ms": "0"},
        {"log.cleaner.max.compaction.lag.ms": "5", "log.cleaner.min.compaction.lag.ms": "6"},
        {"max.connections.per.ip.overrides": "foo"},
    ],
)
def test_refused_at_start(static: dict[str, str]) -> None:
    with pytest.raises(InvalidSetting):
        BrokerSettings(static)


def test_ids() -> None:
    assert BrokerSettings().node_id == 1
    assert BrokerSettings({"broker.id": "7"}).node_id == 7
    assert BrokerSettings({"node.id": "7"}).integer("broker.id") == 7
    assert BrokerSettings({"node.id": "7", "broker.id": " 7"}).node_id == 7


def test_warnings() -> None:
    static = {
        "num.io.threads": "4",
        "zookeeper.ssl.protocol": "TLSv1.2",
        "my.own": "1",
        "num.partitions": "2",
    }
    lines = BrokerSettings(static).warnings()
    assert len(lines) == 3
    own, io, zookeeper = lines
    assert "num.io.threads has no effect" in io
    assert own == "setting my.own is ignored: no such setting"
    assert "zookeeper.ssl.protocol is ignored" in zookeeper


def entry(entries: list[ConfigEntry], name: str) -> ConfigEntry:
    return next(each for each in entries if each.name == name)


def test_describe_hides_secrets_and_unknown_values() -> None:
    settings = BrokerSettings({"ssl.key.password": "hunter2", "my.api.token": "hunter3"})
    text = repr(settings.describe_broker())
    assert "hunter" not in text
    assert entry(settings.describe_broker(), "ssl.key.password").sensitive
    assert entry(settings.describe_broker(), "my.api.token").read_only
    changed = settings.with_dynamic({"my.api.token": "hunter4"}, {"my.api.token": "hunter5"})
    assert "hunter" not in repr(changed.describe_broker() + changed.describe_broker_default())


def test_describe_is_sorted_and_can_be_narrowed() -> None:
    settings = BrokerSettings()
    for entries in (settings.describe_broker(), settings.describe_topic({})):
        names = [each.name for each in entries]
        assert names == sorted(names)
    assert [each.name for each in settings.describe_broker({"num.partitions", "nope"})] == ["num.partitions"]
    assert [each.name for each in settings.describe_topic({}, ["retention.ms"])] == ["retention.ms"]


def test_hidden_settings_show_only_when_set() -> None:
    settings = BrokerSettings()
    assert all(each.name != "internal.segment.bytes" for each in settings.describe_topic({}))
    shown = entry(settings.describe_topic({"internal.segment.bytes": "5"}), "internal.segment.bytes")
    assert (shown.value, shown.source) == ("5", ConfigSource.TOPIC)
    assert all(each.name != "super.users" for each in settings.describe_broker())
    assert entry(BrokerSettings({"super.users": "User:a"}).describe_broker(), "super.users").value == "User:a"


def test_import_stays_light() -> None:
    """The broker imports this before anything else; it must not pull in what the broker may never need."""
    code = (
        "import sys, millstream.settings.resolve, millstream.settings.listeners, "
        "millstream.settings.properties;print([m for m in "
        "('asyncio','socket','json','yaml','pydantic','attr','kio','pathlib','textwrap') if m in "
        "sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env=_path()
    )
    assert done.stdout.strip() == "[]"


def _path() -> dict[str, str]:
    """-S leaves out site-packages, whose .pth files import things of their own; so say where we are."""
    return {"PYTHONPATH": str(Path(millstream.__path__[0]).parent)}


def test_settings_of_parts_that_are_not_built_yet_say_so() -> None:
    settings = BrokerSettings({"log.preallocate": "true", "preallocate": "true", "num.partitions": "3"})
    assert [line.split(":")[0] for line in settings.warnings()] == [
        "setting log.preallocate has no effect",
        "setting preallocate is ignored",
    ]


def test_every_setting_works_or_says_that_it_does_not() -> None:
    """A setting is named somewhere in the code, gives a topic setting its default, or has a reason for doing
    nothing."""
    source = Path(millstream.__file__).parent
    code = "".join(
        path.read_text()
        for room in ("broker", "cluster", "storage", "settings")
        for path in (source / room).rglob("*.py")
        if not (room == "settings" and path.name.startswith("_"))
    )
    defaults = {synonym.name for setting in TOPIC.values() for synonym in setting.synonyms}
    idle = [name for name, row in BROKER.items() if not row.no_effect and f'"{name}"' not in code]
    assert [name for name in idle if name not in defaults] == []
