"""The levels of a running broker's loggers: described and changed like settings, but kept nowhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from millstream.testing import Broker
from millstream.wire.errors import ErrorCode

from ..conftest import Wire

BROKER_LOGGER = 8
SET, DELETE, APPEND, SUBTRACT = range(4)


class Loggers:
    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.node = str(wire.metadata().brokers[0].node_id)

    def levels(self) -> dict[str, str]:
        answer = self.wire.ask(
            "describe_configs",
            resources=[
                {"resource_type": BROKER_LOGGER, "resource_name": self.node, "configuration_keys": None}
            ],
            include_synonyms=True,
            include_documentation=True,
        )
        (found,) = answer.results
        assert found.error_code == 0
        source = 6
        assert {
            (c.config_source, c.read_only, c.is_sensitive, c.synonyms, c.documentation) for c in found.configs
        } == {(source, False, False, (), None)}
        return {config.name: config.value for config in found.configs}

    def alter(
        self, *changes: tuple[str, int, str | None], node: str = "", validate_only: bool = False
    ) -> ErrorCode:
        answer = self.wire.ask(
            "incremental_alter_configs",
            resources=[
                {
                    "resource_type": BROKER_LOGGER,
                    "resource_name": node or self.node,
                    "configs": [
                        {"name": name, "config_operation": operation, "value": value}
                        for name, operation, value in changes
                    ],
                }
            ],
            validate_only=validate_only,
        )
        return ErrorCode(answer.responses[0].error_code)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def loggers(broker: Broker, connect: Callable[[Broker], Wire]) -> Loggers:
    return Loggers(connect(broker))


def test_a_level_is_inherited_set_and_taken_away(loggers: Loggers, broker: Broker) -> None:
    one, other = "millstream.fetch", "millstream.produce"
    before = loggers.levels()
    assert before["root"] == before["millstream"] == before[one] == before[other] == "INFO"
    assert loggers.alter(("millstream", SET, "ERROR"), validate_only=True) == 0
    assert loggers.levels() == before
    assert loggers.alter(("millstream", SET, "ERROR"), (one, SET, "TRACE")) == 0
    now = loggers.levels()
    assert (now["root"], now["millstream"], now[one], now[other]) == ("INFO", "ERROR", "TRACE", "ERROR")
    assert loggers.alter((one, DELETE, None)) == 0
    assert loggers.levels()[one] == "ERROR"
    assert loggers.alter(("millstream", DELETE, None), ("root", SET, "WARN")) == 0
    now = loggers.levels()
    assert now["root"] == now["millstream"] == now[one] == "WARN"
    assert loggers.alter(("root", SET, "INFO")) == 0
    assert loggers.levels() == before


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("root", DELETE, None), ErrorCode.invalid_request),
        (("root", APPEND, "INFO"), ErrorCode.invalid_request),
        (("root", SUBTRACT, "INFO"), ErrorCode.invalid_request),
        (("root", 9, "INFO"), ErrorCode.invalid_request),
        (("root", SET, None), ErrorCode.invalid_request),
        (("root", SET, "OFF"), ErrorCode.invalid_config),
        (("root", SET, "info"), ErrorCode.invalid_config),
        (("no.such.logger", SET, "INFO"), ErrorCode.invalid_config),
        (("no.such.logger", DELETE, None), ErrorCode.invalid_config),
    ],
)
def test_one_bad_change_spoils_all(
    loggers: Loggers, change: tuple[str, int, str | None], error: ErrorCode
) -> None:
    before = loggers.levels()
    assert loggers.alter(("millstream.fetch", SET, "DEBUG"), change) is error
    assert loggers.levels() == before


def test_only_the_broker_itself_is_asked(loggers: Loggers) -> None:
    for node in ("4711", "one"):
        assert loggers.alter(("root", SET, "INFO"), node=node) is ErrorCode.invalid_request
    for node in ("4711", "one", ""):
        answer = loggers.wire.ask(
            "describe_configs",
            resources=[{"resource_type": BROKER_LOGGER, "resource_name": node, "configuration_keys": None}],
            include_synonyms=False,
            include_documentation=False,
        )
        assert answer.results[0].error_code == ErrorCode.invalid_request
