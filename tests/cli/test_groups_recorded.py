"""The story of groups_scenario.py, told to our tools and our broker: they say what Kafka's tools said of
Kafka.

Where Kafka's tool prints an error and ends with 0, ours ends with 1 and says it on the error stream.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.testing import Broker

from .conftest import Done, Run
from .groups_scenario import OWN_WORDS, STORY, WORLD, World, same
from .scenario import Step, arguments

RECORDED = json.loads(Path(__file__).with_name("recorded_groups.json").read_text())
SETTINGS = {"group.initial.rebalance.delay.ms": 0}


def differences(step: Step, done: Done) -> Iterator[str]:
    """What one of our tools did otherwise than Kafka's."""
    expected = RECORDED[step.name]
    printed = done.err.split(" (see millstream ")[0]
    failed = expected["exit"] != 0 or "Error: " in expected["stdout"]
    if step.name in OWN_WORDS:
        if done.code == 0 or OWN_WORDS[step.name] not in printed:
            yield f"{step.name}: {done}\n    instead of {OWN_WORDS[step.name]!r}"
    elif expected["exit"] != 0:
        if done.code == 0 or done.out or not printed.startswith(expected["stderr"][0]):
            yield f"{step.name}: {done}\n    instead of {expected['stderr'][0]!r}"
    elif (done.code != 0) != failed:
        yield f"{step.name}: {done} instead of {expected}"
    elif (failed and same(done.out + done.err) != same(expected["stdout"])) or (
        not failed and same(done.out) != same(expected["stdout"])
    ):
        yield f"{step.name}: {done}\n    instead of {expected['stdout']!r}"


@pytest.mark.timeout(300)
def test_the_story_of_groups(run: Run, tmp_path: Path) -> None:
    wrong: list[str] = []
    with Broker(SETTINGS) as broker:
        world = World(broker.bootstrap_servers)
        try:
            for step in STORY:
                if step.tool == WORLD:
                    getattr(world, step.args)()
                    continue
                if step.file is not None:
                    (tmp_path / "input").write_text(step.file)
                words = arguments(step, broker.bootstrap_servers, str(tmp_path))
                wrong += differences(step, run(step.tool, *words))
        finally:
            world.close()
    assert not wrong, "\n" + "\n".join(wrong)
