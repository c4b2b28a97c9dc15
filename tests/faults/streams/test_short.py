"""The check notices what is wrong; and a few kills of each kind. `make faults-streams` is the long run."""

from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install millstream[pipelines])")
pytest.importorskip(
    "confluent_kafka", reason="confluent-kafka is not installed (pip install millstream[dev])"
)

from tests.faults.streams.run import run
from tests.faults.streams.verdict import compare, stands_at_zero


def _counts(*numbers: int) -> list[tuple[bytes, bytes | None]]:
    return [(b"a", number.to_bytes(8, "big")) for number in numbers]


def test_the_check_notices_what_is_missing_or_repeated() -> None:
    three = {b"a": _counts(3)[0][1]}
    assert compare(Counter({b"a": 3}), _counts(1, 2, 3), three) == []
    for wrong in ((1, 2), (1, 2, 2, 3), (1, 3), (1, 2, 3, 4), ()):
        (problem,) = compare(Counter({b"a": 3}), _counts(*wrong), three)
        assert problem.startswith("key b'a': 3 inputs")
    (problem,) = compare(Counter({b"a": 3}), _counts(1, 2, 3), {b"a": _counts(4)[0][1]})
    assert problem == "key b'a': the changelog says 4, not 3"
    assert len(compare(Counter(), _counts(1), {})) == 1


def test_the_run_notices_that_nothing_moves_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    for lags, caught_up in (([3, 3, 5, 1, 0], True), ([3] * 50, False)):
        left, moments = iter(lags), iter(range(1000))
        clock = SimpleNamespace(monotonic=partial(next, moments), sleep=lambda _seconds: None)
        monkeypatch.setattr("tests.faults.streams.verdict.time", clock)
        assert stands_at_zero(partial(next, left), 4) is caught_up


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_input_is_counted_once(tmp_path: Path) -> None:
    kinds = ("worker", "broker", "worker", "lost commit", "other machine")
    chaos, driver, verdict = run(tmp_path, 0, seed=5, rate=300, seconds=60, kinds=kinds)
    assert chaos.total >= 4, driver.log.read_text()[-3000:]
    assert verdict.inputs > 0
    assert not verdict.wrong, f"{verdict}\n{verdict.problems}\n{driver.log.read_text()[-3000:]}"
