"""The checks notice what is wrong; and one kill of each kind. `make faults-pipeline`, `faults-streams`,
`faults-sql` and `faults-connect` are the long runs.

However busy the machine is, a kill waits for its moment (`PATIENCE`): what is asked for happens, only later.
"""

from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install millstream[pipelines])")
pytest.importorskip(
    "confluent_kafka", reason="confluent-kafka is not installed (pip install millstream[dev])"
)

from tests.faults.spark import pipeline, services, streams
from tests.faults.spark.harness import Outcome, Subject, reaches_zero, run

PATIENCE = 600.0


def test_the_pipelines_check_notices_what_is_missing_or_repeated() -> None:
    inputs = {"0:0", "0:1"}
    assert pipeline.compare(inputs, Counter(inputs)) == []
    assert pipeline.compare(inputs, Counter(["0:1", "0:1", "7:7"])) == [
        "missing: input 0:0",
        "repeated: input 0:1",
        "unknown: input 7:7",
    ]


def _counts(*numbers: int) -> list[tuple[bytes, bytes | None]]:
    return [(b"a", number.to_bytes(8, "big")) for number in numbers]


def test_the_check_of_counts_notices_what_is_missing_or_repeated() -> None:
    three = {b"a": _counts(3)[0][1]}
    assert streams.compare(Counter({b"a": 3}), _counts(1, 2, 3), three) == []
    for wrong in ((1, 2), (1, 2, 2, 3), (1, 3), (1, 2, 3, 4), ()):
        (problem,) = streams.compare(Counter({b"a": 3}), _counts(*wrong), three)
        assert problem.startswith("key b'a': 3 inputs")
    (problem,) = streams.compare(Counter({b"a": 3}), _counts(1, 2, 3), {b"a": _counts(4)[0][1]})
    assert problem == "key b'a': the changelog says 4, not 3"
    assert len(streams.compare(Counter(), _counts(1), {})) == 1


def test_the_check_of_connectors_notices_what_is_missing_or_repeated() -> None:
    text = "Struct{v=input,p=0,o=1}\nStruct{v=input,p=1,o=1}\nStruct{v=input,p=1,o=1}\nStruct{v=inp"
    found = Counter(services.places(text))
    assert services.differences("it", {"0:0", "0:1", "1:1"}, found) == [
        "it: 0:0 is missing",
        "it: Struct{v=inp is unknown",
        "it: 1:1 is there 2 times",
    ]


def test_the_run_notices_that_nothing_moves_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    for lags, caught_up in (([3, 3, 5, 1, 0], True), ([3] * 50, False)):
        left, moments = iter(lags), iter(range(1000))
        clock = SimpleNamespace(monotonic=partial(next, moments), sleep=lambda _seconds: None)
        monkeypatch.setattr("tests.faults.spark.harness.time", clock)
        assert reaches_zero(partial(next, left), 4) is caught_up


def _short(subject: Subject, folder: Path, *acts: str) -> Outcome:
    found = run(subject, folder, kills=0, seed=5, rate=300, seconds=0, acts=acts, patience=PATIENCE)
    assert found.chaos.total == len(acts), found.driver.tail()
    assert found.verdict.inputs > 0
    assert not found.verdict.problems, f"{found.verdict}\n{found.verdict.problems}\n{found.driver.tail()}"
    return found


@pytest.mark.spark
@pytest.mark.timeout(3600)
def test_every_input_has_its_effect_once(tmp_path: Path) -> None:
    _short(pipeline.Pipeline("shuffle"), tmp_path, "worker", "broker", "worker", "lost commit")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_input_is_counted_once(tmp_path: Path) -> None:
    acts = ("worker", "broker", "worker", "lost commit", "other machine")
    assert _short(streams.StreamsApplication(), tmp_path, *acts).chaos.moves == 1


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_sql_counts_every_input_once(tmp_path: Path) -> None:
    _short(services.SqlServer(), tmp_path, "worker", "broker", "jvm", "driver")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_connect_moves_every_record_once(tmp_path: Path) -> None:
    _short(services.ConnectWorker(), tmp_path, "worker", "broker", "jvm", "driver")
