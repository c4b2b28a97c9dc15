"""The pipeline as a subject: every row of the output names its input, and every input must be named once."""

from collections import Counter
from pathlib import Path

from tests.faults.spark.driver import Driver
from tests.faults.spark.harness import SOURCE, TARGET, Verdict, messages_of

SHAPES = ("map", "shuffle")


class Pipeline:
    partitions = 3

    def __init__(self, shape: str) -> None:
        self.shape = shape

    def driver(self, servers: str, folder: Path) -> Driver:
        checkpoint = folder / "checkpoint"
        command = ["tests.faults.spark.pipeline_app", "--servers", servers, "--source", SOURCE]
        command += ["--target", TARGET, "--checkpoint", str(checkpoint), "--shape", self.shape]
        return Driver(command, SOURCE, checkpoint, folder / "driver.log")

    def lose_stores(self, folder: Path) -> None:
        return None

    def lag(self, servers: str) -> int:
        return max(0, len(inputs_of(servers)) - effects_of(servers).total())

    def judge(self, servers: str) -> Verdict:
        inputs, effects = inputs_of(servers), effects_of(servers)
        written = effects_of(servers, "read_uncommitted").total()
        return Verdict(len(inputs), effects.total(), written - effects.total(), compare(inputs, effects))


def inputs_of(servers: str) -> set[str]:
    """`partition:offset` of every record of the input."""
    return {f"{message.partition()}:{message.offset()}" for message in messages_of(servers, SOURCE)}


def effects_of(servers: str, isolation: str = "read_committed") -> Counter[str]:
    """How often each input is named in the output."""
    return Counter((message.value() or b"").decode() for message in messages_of(servers, TARGET, isolation))


def compare(inputs: set[str], effects: Counter[str]) -> list[str]:
    """What is wrong."""
    return [
        *(f"missing: input {name}" for name in sorted(inputs - effects.keys())),
        *(f"repeated: input {name}" for name, count in sorted(effects.items()) if count > 1),
        *(f"unknown: input {name}" for name in sorted(effects.keys() - inputs)),
    ]
