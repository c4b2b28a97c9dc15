"""Jobs that nobody takes."""

from millstream.spark.resources import PATIENCE, Stage, Waiting

WAITS, RUNS = Stage(0, 0, 0), Stage(1, 0, 0)


def test_no_executor_is_said_once_for_each_time_of_want():
    waiting = Waiting("spark://there:7077", {"spark.executor.memory": "900g"})
    assert waiting.look({1: WAITS}, 0, 0.0) is None
    assert waiting.look({1: WAITS}, 0, PATIENCE - 1) is None
    line = waiting.look({1: WAITS}, 0, PATIENCE + 1)
    assert line is not None and "\n" not in line
    assert line.startswith("no executor has taken any work for 16 s: spark://there:7077 offers none")
    assert "900g of memory (spark.executor.memory)" in line
    assert waiting.look({1: WAITS}, 0, PATIENCE + 9) is None
    assert waiting.look({1: RUNS}, 1, PATIENCE + 10) is None
    assert waiting.look({2: WAITS}, 0, 100.0) is None
    assert waiting.look({2: WAITS}, 0, 101.0 + PATIENCE) is not None


def test_slots_that_others_hold_are_named():
    waiting = Waiting("local[2]", {})
    waiting.look({1: RUNS, 2: WAITS}, 1, 0.0)
    line = waiting.look({1: RUNS, 2: WAITS}, 1, PATIENCE)
    assert line == (
        "a job has waited 15 s for a slot: others have all of local[2] (each lane of a Streams application "
        "keeps one, spark.millstream.host.lanes); use a larger local[n]"
    )


def test_a_stage_that_has_done_something_does_not_wait():
    waiting = Waiting("local[2]", {})
    for stage in (Stage(0, 3, 0), Stage(0, 0, 1), RUNS):
        waiting.look({1: stage}, 1, 0.0)
        assert waiting.look({1: stage}, 1, 10 * PATIENCE) is None
