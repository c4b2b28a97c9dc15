"""The story of scenario.py, told to our tools and our broker: they say what Kafka's tools said of Kafka."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.testing import Broker

from .conftest import Done, Run
from .scenario import STORY, STRICTER, Step, arguments, same

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())
USAGE = 2  # where Kafka's tools end with 1 for any reason, ours tell misuse from failure


def differences(step: Step, done: Done) -> Iterator[str]:
    """What one of our tools did otherwise than Kafka's."""
    expected = RECORDED[step.name]
    if step.name in STRICTER:
        expected = {"exit": 1, "says": expected["stdout"]}
    if expected["exit"] == 0:
        if done.code != 0 or same(done.out) != same(expected["stdout"]):
            yield f"{step.name}: {done}\n    instead of {expected['stdout']!r}"
        return
    printed = done.err.split(" (see millstream ")[0].strip().splitlines()
    if done.code not in (1, USAGE) or done.out or len(printed) != 1:
        yield f"{step.name}: {done} is not a failure in one line"
    elif not same(printed[0])[0].startswith(same(expected["says"])[0]):
        yield f"{step.name}: {printed[0]!r}\n    instead of {expected['says']!r}"


@pytest.mark.timeout(300)
def test_the_story(run: Run, tmp_path: Path) -> None:
    wrong: list[str] = []
    with Broker() as broker:
        for step in STORY:
            if step.file is not None:
                (tmp_path / "input").write_text(step.file)
            words = arguments(step, broker.bootstrap_servers, str(tmp_path))
            wrong += differences(step, run(step.tool, *words, stdin=step.stdin or ""))
    assert not wrong, "\n" + "\n".join(wrong)
