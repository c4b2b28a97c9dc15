"""Settings of plugins: what counts, and what a user is told."""

from __future__ import annotations

import pytest
from fastapi import Request

from millstream.connect.config.config_def import (
    REQUIRED,
    ConfigDef,
    ConfigError,
    ConfigKey,
    Range,
    ValidList,
    ValidString,
)
from millstream.connect.config.connector_config import SINK_CONFIG, check_sink
from millstream.connect.config.java_regex import ValidRegex, compile_regex, replace_first
from millstream.connect.rest.responses import body_of
from millstream.http.errors import HttpError
from millstream.settings.config_key import Importance
from millstream.settings.values import Type

CONFIG = ConfigDef(
    [
        ConfigKey("topic", Type.STRING, REQUIRED, Importance.HIGH, "Where to."),
        ConfigKey("batch.size", Type.INT, 100, Importance.LOW, "How many.", Range(1, 1000)),
        ConfigKey("mode", Type.STRING, "bulk", Importance.LOW, "How.", ValidString(("bulk", "query"))),
        ConfigKey("tables", Type.LIST, (), Importance.LOW, "Which.", ValidList()),
    ]
)


def test_defaults_and_given_values() -> None:
    found = CONFIG.parse({"topic": " orders ", "batch.size": "7", "tables": "a, b,a", "unknown": "x"})
    assert found == {"topic": "orders", "batch.size": 7, "mode": "bulk", "tables": ("a", "b")}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, 'Missing required configuration "topic" which has no default value.'),
        (
            {"topic": "t", "batch.size": "0"},
            "Invalid value 0 for configuration batch.size: Value must be at least 1",
        ),
        (
            {"topic": "t", "batch.size": "x"},
            "Invalid value x for configuration batch.size: Not a number of type INT",
        ),
        (
            {"topic": "t", "mode": "x"},
            "Invalid value x for configuration mode: String must be one of: bulk, query",
        ),
        ({"topic": "t", "tables": "a,,b"}, "Configuration 'tables' values must not be empty."),
    ],
)
def test_the_first_wrong_setting_in_kafkas_words(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        CONFIG.parse(settings)
    assert str(caught.value) == message


def test_validate_names_everything_that_is_wrong() -> None:
    found = CONFIG.validate({"batch.size": "5000", "mode": "bulk"})
    assert found["topic"].errors == ['Missing required configuration "topic" which has no default value.']
    assert found["batch.size"].errors == [
        "Invalid value 5000 for configuration batch.size: Value must be no more than 1000"
    ]
    assert found["mode"].value == "bulk"
    assert not found["mode"].errors


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"\p{Alpha}+-\p{Digit}", "orders-7", True),
        (r"[\p{Upper}_]+", "A_B", True),
        (r"\P{Alpha}+", "123", True),
        (r"\Qa.b\E.*", "a.bc", True),
        (r"\Qa.b\E.*", "axbc", False),
        (r"(?<first>a)(?<!b)c", "ac", True),
        (r"\w+", "caf\u00e9", False),  # ASCII, as in Java
        (r"a\z", "a", True),
        (r"[]a]+", "]a", True),
        (r"a\Z", "a", True),
        (r"a\\Z", "a\\Z", True),
        (r"(a)\1", "aa", True),
        (r"(?!b)a++", "aa", True),
        (r"a{,2}", "aa", True),
        (r"(?i)a-\d{2,}", "A-123", True),
        ("(a)" * 200, "a" * 200, True),
    ],
)
def test_patterns_of_java(pattern: str, text: str, matches: bool) -> None:
    assert (compile_regex(pattern).fullmatch(text) is not None) is matches


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|aa)+b", "((a*)*)*b", r"(?<x>(a|\w)*)-\Qb\E\z"])
def test_no_pattern_takes_for_ever(pattern: str) -> None:
    """By Python's own module these would take years, and nothing else of the worker would run."""
    compiled = compile_regex(pattern)
    assert compiled.fullmatch("a" * 200) is None
    assert replace_first(compile_regex("(?<n>a+)-(b)"), "$2${n}", "aa-b") == "baa"


@pytest.mark.parametrize("pattern", ["(" * 5000 + ")" * 5000, "a{99999999999999999999}", "("])
def test_what_cannot_be_compiled_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="Invalid regex"):
        ValidRegex()("regex", pattern)


def test_dead_letters_beside_an_expression_that_is_none() -> None:
    settings = {"topics.regex": "(", "errors.deadletterqueue.topic.name": "letters"}
    found = SINK_CONFIG.validate(settings)
    check_sink(settings, found)
    assert [len(found[name].errors) for name in ("topics", "topics.regex")] == [0, 1]


@pytest.mark.parametrize("name", ["letters", "l\ud800"])
def test_dead_letters_that_would_be_read_again_are_refused(name: str) -> None:
    settings = {"topics.regex": "l.*", "errors.deadletterqueue.topic.name": name}
    found = SINK_CONFIG.validate(settings)
    check_sink(settings, found)
    assert "may not be matched by the regex" in found["topics.regex"].errors[0]


async def test_a_body_that_is_nested_too_deeply_is_refused() -> None:
    body = b'{"a":' * 100_000 + b"1" + b"}" * 100_000

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    with pytest.raises(HttpError) as refused:
        await body_of(Request({"type": "http", "headers": []}, receive))
    assert refused.value.status == 400


def test_a_class_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Invalid regex: \\p\{Sc\} is not supported here"):
        ValidRegex()("regex", r"\p{Sc}")
