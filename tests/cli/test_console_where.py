"""`millstream console-consumer` by expression and by time."""

import json
import time

import pytest

from .conftest import Run

END = {"end": True}
LINES = [
    {"status": "OK", "n": 1},
    {"status": "CRITICAL", "n": 2},
    {"status": "CRITICAL", "n": 30},
]


@pytest.fixture
def alerts(run: Run, bootstrap: str, request: pytest.FixtureRequest) -> tuple[str, ...]:
    """A topic of three alerts and a line that is not JSON, with keys; a last record tells a reader that it
    has seen all."""
    name = f"alerts-{abs(hash(request.node.name)) % 100_000}"
    to = ("--bootstrap-server", bootstrap, "--topic", name)
    text = "".join(f"k{at}\t{json.dumps(line)}\n" for at, line in enumerate(LINES)) + "k3\tplain\n"
    text += f"end\t{json.dumps(END)}\n"
    done = run("console-producer", *to, "--reader-property", "parse.key=true", stdin=text)
    assert done.code == 0, done.err
    return to


@pytest.mark.parametrize(
    ("where", "numbers"),
    [
        ('value.status == "CRITICAL"', [2, 30]),
        ('value.status == "CRITICAL" and value.n < 10', [2]),
        ('key == "k0" or value.n in [30]', [1, 30]),
        ("offset >= 1 and exists(value.n)", [2, 30]),
        ('timestamp > ago("1h") and value.n > 1', [2, 30]),
        ('value matches "n.: 3"', [30]),
        ("value.n > 1000", []),
    ],
)
def test_where(run: Run, alerts: tuple[str, ...], where: str, numbers: list[int]) -> None:
    count = len(numbers) + 1
    words = ["--from-beginning", "--max-messages", str(count), "--timeout-ms", "60000"]
    done = run("console-consumer", *alerts, *words, "--where", f'({where}) or key == "end"')
    assert done.code == 0, done.err
    *found, last = map(json.loads, done.out.splitlines())
    assert last == END
    assert [line["n"] for line in found] == numbers
    assert done.err.endswith(f"Processed a total of {count} messages\n")


def test_where_counts_what_matches(run: Run, alerts: tuple[str, ...]) -> None:
    words = ["--from-beginning", "--where", 'value.status == "CRITICAL"', "--max-messages", "1", "-o", "json"]
    done = run("console-consumer", *alerts, *words)
    assert json.loads(done.out)["offset"] == 1


def test_a_bad_expression_is_pointed_at(run: Run) -> None:
    words = ["--topic", "t", "--bootstrap-server", "127.0.0.1:1", "--where", "value.n >> 3"]
    done = run("console-consumer", *words)
    assert done.code == 2
    assert done.err.splitlines() == [
        "--where: '>' is not expected here",
        "  value.n >> 3",
        "           ^",
        "(see millstream console-consumer --help)",
    ]


def test_from_time(run: Run, alerts: tuple[str, ...]) -> None:
    def read(moment: str, count: int) -> list[str]:
        words = ["--max-messages", str(count), "--timeout-ms", "60000"]
        done = run("console-consumer", *alerts, "--from-time", moment, *words)
        assert done.code == 0, done.err
        return done.out.splitlines()

    assert len(read("-1h", 5)) == 5
    assert len(read("2020-01-01T00:00Z", 5)) == 5
    done = run("console-consumer", *alerts, "--from-time", "now", "--timeout-ms", "300")
    assert (done.code, done.out) == (0, "")
    # Timestamps are milliseconds: this moment is after those before it, and before those after it.
    time.sleep(0.01)
    between = str(round(time.time() * 1000))
    time.sleep(0.01)
    run("console-producer", *alerts, stdin="later\n")
    assert read(between, 1) == ["later"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--from-time", "noon"], "is not a time"),
        (["--from-time", "-1h", "--from-beginning"], "use one of them"),
        (["--from-time", "-1h", "--group", "g"], "--reset-offsets"),
    ],
)
def test_misuse(run: Run, words: list[str], says: str) -> None:
    done = run("console-consumer", "--topic", "t", "--bootstrap-server", "127.0.0.1:1", *words)
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert says in done.err
