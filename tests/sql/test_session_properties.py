"""What SET takes and refuses."""

from __future__ import annotations

import pytest

from millstream.sql.errors import SqlError
from millstream.sql.session_properties import check_denied, check_property


@pytest.mark.parametrize(
    "name",
    [
        "auto.offset.reset",
        "ksql.streams.auto.offset.reset",
        "ksql.streams.consumer.max.poll.records",
        "ksql.streams.main.consumer.fetch.min.bytes",
        "producer.linger.ms",
        "ksql.streams.topic.retention.ms",
        "ksql.streams.num.standby.replicas",
        "processing.guarantee",
        "cache.max.bytes.buffering",
        "sasl.jaas.config",
        "ksql.query.pull.table.scan.enabled",
        "ksql.functions.collect_list.limit",
        "ksql.some.setting.of.ksqldb",
    ],
)
def test_settings_of_ksqldb_streams_and_clients_are_known(name: str) -> None:
    check_property(name, "earliest")


@pytest.mark.parametrize(
    "name",
    ["auto.ofset.reset", "ksql.streams.auto.ofset.reset", "consumer.nonsense", "nonsense", ""],
)
def test_a_setting_that_nobody_knows_is_refused(name: str) -> None:
    with pytest.raises(SqlError) as refused:
        check_property(name, "earliest")
    assert str(refused.value) == f"Unknown property: {name}"


def test_a_start_that_there_is_not_is_refused() -> None:
    with pytest.raises(SqlError) as refused:
        check_property("ksql.streams.auto.offset.reset", "begin")
    assert str(refused.value) == (
        "Failed to set 'ksql.streams.auto.offset.reset' to 'begin': Invalid value begin for configuration "
        "auto.offset.reset: String must be one of: latest, earliest, none"
    )


def test_what_is_denied_is_denied_under_both_names() -> None:
    check_denied(["auto.offset.reset"], ["ksql.streams.state.dir"])
    for name in ("state.dir", "ksql.streams.state.dir"):
        with pytest.raises(SqlError) as refused:
            check_denied(["auto.offset.reset", name], ["ksql.streams.state.dir"])
        assert str(refused.value) == f"Cannot override property '{name}'"
