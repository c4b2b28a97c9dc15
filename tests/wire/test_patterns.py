"""Expressions from outside: what one of them may cost."""

import pytest

from millstream.patterns import MAX_LENGTH, MAX_UNICODE_CLASSES, InvalidPattern, compile_pattern


def test_nothing_is_captured() -> None:
    """Captures took 6 GB for 28 KB of brackets."""
    pattern = compile_pattern("(" * 1000 + "a" + ")" * 1000)
    assert pattern.groups == 0
    assert pattern.fullmatch("a") is not None
    assert compile_pattern("(?P<name>a)(b)").groups == 1  # a name is captured whatever the options say


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing )"),
        ("a(?=b)", "invalid perl operator"),
        ("a" * (MAX_LENGTH + 1), "longer than 4096 characters"),
        (r"\pL" * (MAX_UNICODE_CLASSES + 1), "more than 64 Unicode classes"),
        (r"\P{Lu}" * (MAX_UNICODE_CLASSES + 1), "more than 64 Unicode classes"),
        ("\ud800", "half a character"),
        ("".join(f"(?P<g{number}>" for number in range(17)) + ")" * 17, "more than 16 named groups"),
    ],
)
def test_refused(pattern: str, reason: str) -> None:
    for _ in range(2):  # the second time from the cache
        with pytest.raises(InvalidPattern, match=reason.replace(")", r"\)")):
            compile_pattern(pattern)


def test_up_to_the_limits() -> None:
    assert compile_pattern("a" * MAX_LENGTH).fullmatch("a" * MAX_LENGTH)
    assert compile_pattern(r"\pL" * MAX_UNICODE_CLASSES).fullmatch("é" * MAX_UNICODE_CLASSES)


def test_memory_is_bounded() -> None:
    with pytest.raises(InvalidPattern, match="too large"):
        compile_pattern(".{1000}" * 100, 1 << 20)
