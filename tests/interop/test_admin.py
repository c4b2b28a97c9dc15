"""Topics, partitions, settings and the cluster, through the admin side of each client."""

from collections.abc import Callable

import pytest

from millstream.wire.errors import ErrorCode
from tests.support.waiting import wait_until

from .clients import Client, Confluent, KafkaPython, Record, Refused

TOPIC_SOURCE, DYNAMIC_BROKER, DEFAULT = 1, 2, 5
NewTopic = Callable[..., str]


def code_of(refused: pytest.ExceptionInfo[Refused]) -> ErrorCode:
    return ErrorCode(refused.value.code)


# -- topics --------------------------------------------------------------------------------------------------


def test_create_describe_list_delete(client: Client, name: str) -> None:
    client.create_topic(name, partitions=3)
    wait_until(lambda: name in client.topics(), ignoring=Refused)
    ((broker, _),) = client.describe_cluster()[2].items()
    assert client.describe_topic(name) == {n: (broker, [broker], [broker]) for n in range(3)}
    client.delete_topic(name)
    wait_until(lambda: name not in client.topics(), ignoring=Refused)
    client.create_topic(name, partitions=1)  # the name is free again at once
    wait_until(lambda: list(client.describe_topic(name)) == [0], ignoring=Refused)


def test_describing_what_is_not_there(clients: dict[str, Client], name: str) -> None:
    for library in ("confluent", "kafka-python"):  # aiokafka asks in a way that makes the topic
        with pytest.raises(Refused) as refused:
            clients[library].describe_topic(name)
        assert code_of(refused) == ErrorCode.unknown_topic_or_partition
    assert name not in clients["confluent"].topics()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"partitions": 0}, ErrorCode.invalid_partitions),
        ({"replicas": 3}, ErrorCode.invalid_replication_factor),
        ({"replicas": 0}, ErrorCode.invalid_replication_factor),
        ({"configs": {"no.such.setting": "1"}}, ErrorCode.invalid_config),
        ({"configs": {"retention.ms": "soon"}}, ErrorCode.invalid_config),
        ({"configs": {"cleanup.policy": "burn"}}, ErrorCode.invalid_config),
        ({"configs": {"segment.bytes": "1"}}, ErrorCode.invalid_config),
        ({"assignment": {0: [4711]}}, ErrorCode.invalid_replica_assignment),
        ({"assignment": {0: [1, 1]}}, ErrorCode.invalid_replica_assignment),
    ],
    ids=str,
)
def test_a_topic_that_cannot_be_is_refused(
    client: Client, name: str, options: dict[str, object], code: ErrorCode
) -> None:
    with pytest.raises(Refused) as refused:
        client.create_topic(name, **options)  # type: ignore[arg-type]
    assert code_of(refused) == code
    assert name not in client.topics()


@pytest.mark.parametrize("bad", ["a name", "..", "a/b", "x" * 250, "süß"])
def test_a_bad_name_is_refused(client: Client, bad: str) -> None:
    with pytest.raises(Refused) as refused:
        client.create_topic(bad)
    assert code_of(refused) == ErrorCode.invalid_topic_exception


def test_names_that_would_share_a_metric_are_refused(client: Client, name: str) -> None:
    client.create_topic(f"{name}.a.b")
    wait_until(lambda: f"{name}.a.b" in client.topics(), ignoring=Refused)
    with pytest.raises(Refused) as refused:
        client.create_topic(f"{name}.a_b")
    assert code_of(refused) == ErrorCode.invalid_topic_exception


def test_the_longest_name_works(client: Client, name: str) -> None:
    long = name + "x" * (249 - len(name))
    client.create_topic(long)
    wait_until(lambda: long in client.topics(), ignoring=Refused)
    assert client.produce(long, [Record(b"1", partition=0)]) == [(0, 0)]
    client.delete_topic(long)


def test_a_topic_exists_once(client: Client, new_topic: NewTopic) -> None:
    with pytest.raises(Refused) as refused:
        client.create_topic(new_topic())
    assert code_of(refused) == ErrorCode.topic_already_exists


def test_asked_for_validation_only_nothing_is_made(client: Client, name: str, new_topic: NewTopic) -> None:
    client.create_topic(name, validate_only=True)
    assert name not in client.topics()
    with pytest.raises(Refused) as refused:
        client.create_topic(new_topic(), validate_only=True)
    assert code_of(refused) == ErrorCode.topic_already_exists


def test_replicas_placed_by_hand(client: Client, name: str) -> None:
    (broker,) = client.describe_cluster()[2]
    client.create_topic(name, assignment={0: [broker], 1: [broker]})
    wait_until(lambda: name in client.topics(), ignoring=Refused)
    assert len(client.describe_topic(name)) == 2


def test_deleting_what_is_not_there(client: Client, name: str) -> None:
    with pytest.raises(Refused) as refused:
        client.delete_topic(name)
    assert code_of(refused) == ErrorCode.unknown_topic_or_partition


def test_partitions_can_be_added_never_removed(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    client.create_partitions(topic, 5)
    wait_until(lambda: sorted(client.describe_topic(topic)) == [0, 1, 2, 3, 4], ignoring=Refused)
    assert client.produce(topic, [Record(b"1", partition=4)]) == [(4, 0)]
    for count in (5, 4):
        with pytest.raises(Refused) as refused:
            client.create_partitions(topic, count)
        assert code_of(refused) == ErrorCode.invalid_partitions


def test_partitions_of_an_unknown_topic(client: Client, name: str) -> None:
    with pytest.raises(Refused) as refused:
        client.create_partitions(name, 5)
    assert code_of(refused) == ErrorCode.unknown_topic_or_partition


# -- settings ------------------------------------------------------------------------------------------------

KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "index.interval.bytes": "4096",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "preallocate": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def test_a_new_topic_has_the_defaults(client: Client, new_topic: NewTopic) -> None:
    configs = client.configs("topic", new_topic())
    assert {name: configs[name].value for name in KAFKA_DEFAULTS} == KAFKA_DEFAULTS
    assert {configs[name].source for name in KAFKA_DEFAULTS} == {DEFAULT}
    assert not any(config.read_only or config.sensitive for config in configs.values())
    assert configs["min.insync.replicas"].value == "1"


def test_settings_given_at_creation_are_the_topics_own(client: Client, name: str) -> None:
    client.create_topic(name, configs={"retention.ms": "12345", "cleanup.policy": "compact,delete"})
    wait_until(lambda: name in client.topics(), ignoring=Refused)
    configs = client.configs("topic", name)
    assert configs["retention.ms"] == ("12345", TOPIC_SOURCE, False, False)
    assert configs["cleanup.policy"].value == "compact,delete"
    assert configs["segment.ms"].source == DEFAULT


def test_settings_of_an_unknown_topic(clients: dict[str, Client], name: str) -> None:
    for library in ("confluent", "aiokafka"):  # kafka-python does not say
        with pytest.raises(Refused) as refused:
            clients[library].configs("topic", name)
        assert code_of(refused) == ErrorCode.unknown_topic_or_partition


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated:DeprecationWarning")
def test_replacing_the_settings(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"retention.ms": "1000", "segment.ms": "2000"})
    client.replace_configs("topic", topic, {"retention.ms": "3000"})
    wait_until(
        lambda: client.configs("topic", topic)["retention.ms"][:2] == ("3000", TOPIC_SOURCE), ignoring=Refused
    )
    configs = client.configs("topic", topic)
    if client.name != "kafka-python":  # which names every setting that the topic had
        assert configs["segment.ms"][:2] == ("604800000", DEFAULT)
    with pytest.raises(Refused) as refused:
        client.replace_configs("topic", topic, {"retention.ms": "never"})
    assert code_of(refused) == ErrorCode.invalid_config
    assert client.configs("topic", topic)["retention.ms"].value == "3000"


@pytest.fixture(params=["confluent", "kafka-python"])
def incremental(request: pytest.FixtureRequest, clients: dict[str, Client]) -> Confluent | KafkaPython:
    """The clients that can change settings one by one."""
    found = clients[request.param]
    assert isinstance(found, Confluent | KafkaPython)
    return found


def test_changing_settings_one_by_one(incremental: Confluent | KafkaPython, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"retention.ms": "1000", "segment.ms": "20000"})

    def change(*changes: tuple[str, str, str | None]) -> None:
        incremental.change_configs("topic", topic, list(changes))

    def shows(**expected: tuple[str, int]) -> None:
        def are_there() -> bool:
            found = incremental.configs("topic", topic)
            return all(found[name.replace("_", ".")][:2] == value for name, value in expected.items())

        wait_until(are_there, ignoring=Refused)

    change(("set", "retention.ms", "5000"), ("append", "cleanup.policy", "compact"))
    shows(
        retention_ms=("5000", TOPIC_SOURCE),
        segment_ms=("20000", TOPIC_SOURCE),
        cleanup_policy=("delete,compact", TOPIC_SOURCE),
    )
    change(("append", "cleanup.policy", "compact"))
    shows(cleanup_policy=("delete,compact", TOPIC_SOURCE))
    change(("subtract", "cleanup.policy", "delete"))
    shows(cleanup_policy=("compact", TOPIC_SOURCE))
    change(("delete", "cleanup.policy", None), ("delete", "retention.ms", None))
    shows(cleanup_policy=("delete", DEFAULT), retention_ms=("604800000", DEFAULT))
    change(("delete", "flush.ms", None))  # deleting what is not set is no error


@pytest.mark.parametrize(
    "change",
    [
        ("set", "retention.ms", "long"),
        ("set", "no.such.setting", "1"),
        ("append", "retention.ms", "1"),
        ("subtract", "retention.ms", "1"),
        ("set", "min.insync.replicas", "0"),
    ],
    ids=" ".join,
)
def test_a_change_that_cannot_be_is_refused(
    incremental: Confluent | KafkaPython, new_topic: NewTopic, change: tuple[str, str, str]
) -> None:
    topic = new_topic()
    with pytest.raises(Refused) as refused:
        incremental.change_configs("topic", topic, [change])
    assert code_of(refused) == ErrorCode.invalid_config


def test_a_change_for_validation_only_changes_nothing(
    incremental: Confluent | KafkaPython, new_topic: NewTopic
) -> None:
    topic = new_topic()
    incremental.change_configs("topic", topic, [("set", "retention.ms", "5000")], validate_only=True)
    assert incremental.configs("topic", topic)["retention.ms"].source == DEFAULT
    with pytest.raises(Refused):
        incremental.change_configs("topic", topic, [("set", "retention.ms", "x")], validate_only=True)


def test_changing_an_unknown_topic(incremental: Confluent | KafkaPython, name: str) -> None:
    with pytest.raises(Refused) as refused:
        incremental.change_configs("topic", name, [("set", "retention.ms", "5000")])
    assert code_of(refused) == ErrorCode.unknown_topic_or_partition


def test_a_changed_setting_takes_effect_at_once(
    incremental: Confluent | KafkaPython, new_topic: NewTopic
) -> None:
    topic = new_topic()
    incremental.change_configs("topic", topic, [("set", "max.message.bytes", "500")])
    wait_until(
        lambda: incremental.configs("topic", topic)["max.message.bytes"].value == "500", ignoring=Refused
    )
    with pytest.raises(Refused) as refused:
        incremental.produce(topic, [Record(b"x" * 1000)])
    assert code_of(refused) == ErrorCode.message_too_large
    incremental.change_configs("topic", topic, [("delete", "max.message.bytes", None)])
    wait_until(
        lambda: incremental.configs("topic", topic)["max.message.bytes"].value == "1048588", ignoring=Refused
    )
    assert incremental.produce(topic, [Record(b"x" * 1000)]) == [(0, 0)]


def test_the_settings_of_the_broker(client: Client) -> None:
    ((broker, _),) = client.describe_cluster()[2].items()
    configs = client.configs("broker", str(broker))
    assert configs["num.partitions"].value == "1"
    assert configs["message.max.bytes"].value == "1048588"
    assert configs["auto.create.topics.enable"].value == "true"
    assert configs["log.retention.hours"].value == "168"
    assert configs["listeners"].value is not None
    assert configs["ssl.keystore.password"][2:] == (False, True)
    assert configs["ssl.keystore.password"].value is None
    assert configs["log.dirs"].read_only
    assert not configs["message.max.bytes"].read_only


def test_a_dynamic_setting_of_the_broker_reaches_its_topics(
    incremental: Confluent | KafkaPython, new_topic: NewTopic
) -> None:
    ((broker, _),) = incremental.describe_cluster()[2].items()
    topic = new_topic()

    def shows(value: str, source: int) -> None:
        wait_until(
            lambda: incremental.configs("topic", topic)["retention.ms"][:2] == (value, source),
            ignoring=Refused,
        )

    incremental.change_configs("broker", str(broker), [("set", "log.retention.ms", "86400000")])
    try:
        shows("86400000", DYNAMIC_BROKER)
        assert incremental.configs("broker", str(broker))["log.retention.ms"][:2] == (
            "86400000",
            DYNAMIC_BROKER,
        )
    finally:
        incremental.change_configs("broker", str(broker), [("delete", "log.retention.ms", None)])
    shows("604800000", DEFAULT)


def test_a_setting_of_the_broker_that_needs_a_restart_is_refused(
    incremental: Confluent | KafkaPython,
) -> None:
    ((broker, _),) = incremental.describe_cluster()[2].items()
    with pytest.raises(Refused) as refused:
        incremental.change_configs("broker", str(broker), [("set", "log.dirs", "/elsewhere")])
    assert code_of(refused) == ErrorCode.invalid_request


# -- the cluster ---------------------------------------------------------------------------------------------


def test_all_clients_see_the_same_cluster(client: Client, clients: dict[str, Client]) -> None:
    cluster, controller, nodes = client.describe_cluster()
    assert cluster
    assert controller in nodes
    assert list(nodes.values()) == [client.bootstrap.replace("localhost", "127.0.0.1")]
    assert (cluster, controller, nodes) == clients["confluent"].describe_cluster()
