"""Settings of one group: changed, described, obeyed, refused."""

from typing import Any

from millstream.broker.coordinators.groups.group_settings import within_bounds
from millstream.settings.resolve import BrokerSettings

from ...raw_frames import new_topic
from .raw_groups import Groups
from .test_consumer_answers import beat

GROUP, INVALID_CONFIG, INVALID_REQUEST = 32, 40, 42


def alter(client: Groups, group: str, **values: str | None) -> int:
    configs = [
        {"name": name.replace("_", "."), "config_operation": 1 if value is None else 0, "value": value}
        for name, value in values.items()
    ]
    resource = {"resource_type": GROUP, "resource_name": group, "configs": configs}
    answer = client.ask("incremental_alter_configs", 1, resources=[resource], validate_only=False)
    return int(answer.responses[0].error_code)


def described(client: Groups, group: str) -> dict[str, Any]:
    resource = {"resource_type": GROUP, "resource_name": group, "configuration_keys": None}
    answer = client.ask(
        "describe_configs", 4, resources=[resource], include_synonyms=True, include_documentation=False
    )
    assert answer.results[0].error_code == 0
    return {each.name: (each.value, each.config_source) for each in answer.results[0].configs}


def test_a_group_has_its_own_heartbeat_interval(servers: str, name: str) -> None:
    with Groups(servers) as client:
        client.find("x")
        new_topic(servers, name, 1)
        assert described(client, name)["consumer.heartbeat.interval.ms"] == ("500", 4)
        assert (
            alter(client, name, consumer_heartbeat_interval_ms="700", consumer_session_timeout_ms="7000") == 0
        )
        assert described(client, name)["consumer.heartbeat.interval.ms"] == ("700", 8)
        answer = beat(client, name, "m", 0, rebalance=5000, topics=[name], owned=[])
        assert answer.heartbeat_interval.total_seconds() == 0.7
        assert alter(client, name, consumer_heartbeat_interval_ms=None) == 0
        answer = beat(client, name, "m", answer.member_epoch)
        assert answer.heartbeat_interval.total_seconds() == 0.5
        beat(client, name, "m", -1)


def test_the_chain_of_a_setting_is_the_brokers(servers: str, name: str) -> None:
    with Groups(servers) as client:
        found = described(client, name)
        assert found["consumer.session.timeout.ms"][1] == 4  # in the broker's file
        assert found["consumer.assignment.interval.ms"] == ("0", 4)
        assert alter(client, name, consumer_assignment_interval_ms="50") == 0
        assert described(client, name)["consumer.assignment.interval.ms"] == ("50", 8)
        assert alter(client, name, consumer_assignment_interval_ms="15001") == INVALID_CONFIG


def test_what_is_refused(servers: str, name: str) -> None:
    with Groups(servers) as client:
        assert alter(client, name, consumer_heartbeat_interval_ms="1") == INVALID_CONFIG
        assert alter(client, name, consumer_session_timeout_ms="9999999") == INVALID_CONFIG
        assert alter(client, name, consumer_session_timeout_ms="many") == INVALID_CONFIG
        assert alter(client, name, no_such_setting="1") == INVALID_CONFIG
        assert alter(client, "", consumer_session_timeout_ms="7000") == INVALID_REQUEST


def test_a_setting_from_before_the_bounds_changed() -> None:
    settings = BrokerSettings(
        {
            "group.consumer.min.session.timeout.ms": "7000",
            "group.consumer.session.timeout.ms": "8000",
            "group.consumer.max.session.timeout.ms": "9000",
        }
    )
    asked = (6000, 7500, 10_000)
    assert [within_bounds(settings, "consumer.session.timeout.ms", each) for each in asked] == [
        7000,
        7500,
        9000,
    ]
