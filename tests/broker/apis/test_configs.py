"""Settings over the wire: what is asked for, what is named twice, and values that must not break a log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millstream.testing import Broker
from millstream.wire.errors import ErrorCode

from ..conftest import Wire

TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32


def describe(wire: Wire, kind: int, name: str, keys: list[str] | None = None) -> Any:
    answer = wire.ask(
        "describe_configs",
        resources=[{"resource_type": kind, "resource_name": name, "configuration_keys": keys}],
        include_synonyms=False,
        include_documentation=False,
    )
    return answer.results[0]


def alter(wire: Wire, *resources: tuple[int, str, dict[str, str]], legacy: bool = False) -> Any:
    """Set these values; error code and message of each resource."""
    answer = wire.ask(
        "alter_configs" if legacy else "incremental_alter_configs",
        resources=[
            {
                "resource_type": kind,
                "resource_name": name,
                "configs": [
                    {"name": key, "value": value} | ({} if legacy else {"config_operation": 0})
                    for key, value in values.items()
                ],
            }
            for kind, name, values in resources
        ],
        validate_only=False,
    )
    return [(each.resource_name, each.error_code, each.error_message) for each in answer.responses]


def test_no_names_means_all_settings(wire: Wire) -> None:
    topic = wire.create()
    answer = describe(wire, TOPIC, topic)
    assert answer.error_message == ""  # not null, as in Kafka
    everything = answer.configs
    assert len(everything) > 20
    assert describe(wire, TOPIC, topic, []).configs == everything
    assert [each.name for each in describe(wire, TOPIC, topic, ["retention.ms"]).configs] == ["retention.ms"]


@pytest.mark.parametrize("name", ["", "..", "a b", "x" * 250])
def test_settings_of_a_topic_that_cannot_be(wire: Wire, name: str) -> None:
    answer = describe(wire, TOPIC, name)
    assert answer.error_code == ErrorCode.invalid_topic_exception
    assert "Topic name is invalid" in answer.error_message
    assert describe(wire, TOPIC, "no-such").error_code == ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("legacy", [False, True])
def test_a_resource_that_is_named_twice_is_not_changed(wire: Wire, legacy: bool) -> None:
    topic, other = wire.create(), wire.create()
    answer = alter(
        wire,
        (TOPIC, topic, {"retention.ms": "1000"}),
        (TOPIC, other, {"retention.ms": "1000"}),
        (TOPIC, topic, {"segment.ms": "1000"}),
        legacy=legacy,
    )
    refused = (topic, ErrorCode.invalid_request, "Each resource must appear at most once.")
    assert answer == [refused, (other, 0, None), refused]  # in the order asked
    for name, expected in ((topic, "604800000"), (other, "1000")):
        assert [each.value for each in describe(wire, TOPIC, name, ["retention.ms"]).configs] == [expected]


@pytest.mark.parametrize("legacy", [False, True])
def test_a_setting_that_is_named_twice_is_not_changed(wire: Wire, legacy: bool) -> None:
    topic = wire.create()
    operation = {} if legacy else {"config_operation": 0}
    answer = wire.ask(
        "alter_configs" if legacy else "incremental_alter_configs",
        resources=[
            {
                "resource_type": TOPIC,
                "resource_name": topic,
                "configs": [
                    {"name": "retention.ms", "value": value} | operation for value in ("1000", "2000")
                ],
            }
        ],
        validate_only=False,
    )
    (refused,) = answer.responses
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.invalid_request,
        "Error due to duplicate config keys",
    )
    assert [each.value for each in describe(wire, TOPIC, topic, ["retention.ms"]).configs] == ["604800000"]


@pytest.mark.parametrize("legacy", [False, True])
def test_settings_of_a_topic_or_broker_that_is_not_there(wire: Wire, legacy: bool) -> None:
    answer = alter(
        wire,
        (TOPIC, "no-such", {"retention.ms": "1000"}),
        (TOPIC, "no-such-2", {"retention.ms": "soon"}),
        (TOPIC, "a b", {"retention.ms": "1000"}),
        (BROKER, "4711", {"log.retention.ms": "1000"}),
        (BROKER, "one", {"log.retention.ms": "1000"}),
        (99, "x", {"retention.ms": "1000"}),
        legacy=legacy,
    )
    assert [code for _, code, _ in answer] == [
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.invalid_config,
        ErrorCode.invalid_topic_exception,
        ErrorCode.invalid_request,
        ErrorCode.invalid_request,
        ErrorCode.invalid_request,
    ]


def test_what_has_settings(connect: Callable[[Broker], Wire]) -> None:
    """Brokers and their loggers by id; the default of all brokers is not one of them."""
    with Broker() as broker:
        wire = connect(broker)
        node = str(wire.metadata().brokers[0].node_id)
        topic = wire.create()
        assert alter(wire, (BROKER, "", {"log.retention.ms": "1000"}))[0][1] == 0
        assert alter(wire, (GROUP, "g", {"consumer.session.timeout.ms": "50000"}))[0][1] == 0

        def listed(*kinds: int) -> set[tuple[int, str]]:
            answer = wire.ask("list_config_resources", resource_types=kinds)
            assert answer.error_code == 0
            return {(each.resource_type, each.resource_name) for each in answer.config_resources}

        everything = {(TOPIC, topic), (BROKER, node), (BROKER_LOGGER, node), (GROUP, "g")}
        assert listed() == everything
        for kind in (TOPIC, BROKER, BROKER_LOGGER, GROUP):
            assert listed(kind) == {each for each in everything if each[0] == kind}
        answer = wire.ask("list_config_resources", resource_types=[TOPIC, 99])
        assert (answer.error_code, answer.config_resources) == (ErrorCode.unsupported_version, ())


def test_compaction_lags_that_do_not_fit_together(connect: Callable[[Broker], Wire]) -> None:
    """One by one each is fine. Together they must neither be accepted nor keep a log from being opened."""
    min_lag, max_lag = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    with Broker() as broker:
        wire = connect(broker)
        node = str(wire.metadata().brokers[0].node_id)
        topic = wire.create(max_compaction_lag_ms="500")
        assert alter(wire, (BROKER, "", {min_lag: "1000"}))[0][1] == 0  # more than that topic's longest
        for name in ("", node):
            ((_, error, message),) = alter(wire, (BROKER, name, {max_lag: "999"}))
            assert (error, max_lag in message) == (ErrorCode.invalid_request, True)
        assert alter(wire, (BROKER, node, {max_lag: "1000"}))[0][1] == 0
        assert alter(wire, (BROKER, "", {min_lag: "1001"}))[0][1] == ErrorCode.invalid_request
        assert alter(wire, (TOPIC, topic, {"min.compaction.lag.ms": "501"}))[0][1] == ErrorCode.invalid_config
        assert wire.produce(topic, b"a").error_code == 0
        broker.restart()
        wire = connect(broker)
        assert wire.produce(topic, b"b").base_offset == 1
        assert wire.produce(wire.create(), b"c").error_code == 0
        assert "Traceback" not in broker.log
