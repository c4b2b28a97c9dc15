"""The command line: our tools with the broker under test, and Kafka's own tools with it.

Both are told the story of tests/cli/scenario.py; what Kafka's tools said of Kafka is in
tests/cli/recorded.json. A broker hears the story once, since it is about the same topics each time: so
Kafka's tools talk to a broker of their own.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.testing import Broker
from tests.support.peers import apache_kafka

from ..cli.scenario import KAFKA_CLASSES, STORY, STRICTER, Step, arguments, same

RECORDED = json.loads((Path(__file__).parents[1] / "cli" / "recorded.json").read_text())
pytestmark = [pytest.mark.interop_slow, pytest.mark.timeout(1200)]

Tool = Callable[[Step, list[str]], "subprocess.CompletedProcess[str]"]


def differences(bootstrap: str, folder: Path, tool: Tool, recorded: dict[str, Any]) -> list[str]:
    """Tell the story and return what came out otherwise than recorded."""
    wrong = []
    for step in STORY:
        if step.file is not None:
            (folder / "input").write_text(step.file)
        done = tool(step, arguments(step, bootstrap, str(folder)))
        expected = recorded[step.name]
        if expected["exit"] == 0:
            if done.returncode != 0 or same(done.stdout) != same(expected["stdout"]):
                wrong.append(f"{step.name}: {done}\n    instead of {expected['stdout']!r}")
        elif done.returncode == 0 or same(expected["says"])[0].rstrip(".") not in done.stdout + done.stderr:
            wrong.append(f"{step.name}: {done}\n    instead of {expected['says']!r}")
    return wrong


def test_our_tools(bootstrap: str, tmp_path: Path) -> None:
    def run(step: Step, words: list[str]) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "millstream", step.tool, *words]
        return subprocess.run(command, input=step.stdin or "", capture_output=True, text=True, timeout=120)

    stricter = {name: {"exit": 1, "says": RECORDED[name]["stdout"]} for name in STRICTER}
    wrong = differences(bootstrap, tmp_path, run, RECORDED | stricter)
    assert not wrong, "\n" + "\n".join(wrong)


def test_kafkas_tools(against: str, tmp_path: Path) -> None:
    if against != "millstream":
        pytest.skip("what Kafka's tools say of Kafka is the recording")
    peer = apache_kafka()

    def run(step: Step, words: list[str]) -> "subprocess.CompletedProcess[str]":
        done: subprocess.CompletedProcess[str] = peer.tool(
            KAFKA_CLASSES[step.tool], *words, stdin=step.stdin or ""
        )
        return done

    with Broker() as broker:
        wrong = differences(broker.bootstrap_servers, tmp_path, run, RECORDED)
    assert not wrong, "\n" + "\n".join(wrong)
