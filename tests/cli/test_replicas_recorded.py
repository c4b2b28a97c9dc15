"""The story of replicas_scenario.py, told to our tools and our broker: they say what Kafka's tools said of
Kafka."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.testing import Broker

from .conftest import Done, Run
from .replicas_scenario import STORY, same
from .scenario import Step, arguments

RECORDED = json.loads(Path(__file__).with_name("recorded_replicas.json").read_text())


def differences(step: Step, done: Done) -> Iterator[str]:
    expected = RECORDED[step.name]
    if expected["exit"] == 0:
        if done.code != 0 or same(done.out) != same(expected["stdout"]):
            yield f"{step.name}: {done}\n    instead of {expected['stdout']!r}"
        return
    # An election that failed is told with the others, on the standard output.
    printed = (done.out + done.err).split(" (see millstream ")[0].splitlines()
    if done.code not in (1, 2) or len(done.err.splitlines()) != 1:
        yield f"{step.name}: {done} is not a failure in one line"
    elif not same(printed[0])[0].startswith(same(expected["says"])[0]):
        yield f"{step.name}: {printed[0]!r}\n    instead of {expected['says']!r}"


@pytest.mark.timeout(300)
def test_the_story(run: Run, tmp_path: Path) -> None:
    wrong: list[str] = []
    with Broker({"node.id": "1"}) as broker:
        for step in STORY:
            if step.file is not None:
                (tmp_path / "input").write_text(step.file)
            words = arguments(step, broker.bootstrap_servers, str(tmp_path))
            wrong += differences(step, run(step.tool, *words))
    assert not wrong, "\n" + "\n".join(wrong)
