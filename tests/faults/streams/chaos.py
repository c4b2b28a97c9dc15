"""What goes wrong with an application, by a seed: all that goes wrong with a pipeline, and lost local state."""

import shutil
import sys
from pathlib import Path

from tests.faults.pipeline.chaos import PipelineChaos
from tests.faults.pipeline.driver import Driver
from tests.faults.streams.app import APPLICATION


class StreamsDriver(Driver):
    """The application's tree of processes."""

    def __init__(self, servers: str, source: str, target: str, state: Path, log: Path) -> None:
        self.state = state
        super().__init__(servers, source, target, state / APPLICATION / "checkpoint", "", log)

    def command(self, servers: str, source: str, target: str, shape: str) -> list[str]:
        command = [sys.executable, "-m", "tests.faults.streams.app", "--servers", servers]
        return [*command, "--source", source, "--target", target, "--state", str(self.state)]

    def forget_stores(self, everything: bool) -> None:
        """Another machine: the stores are not there, and perhaps not even Spark's checkpoint."""
        folder = self.state / APPLICATION
        shutil.rmtree(folder if everything else folder / "stores", ignore_errors=True)


class StreamsChaos(PipelineChaos):
    driver: StreamsDriver
    moves = 0

    def other_machine(self) -> None:
        self.driver.kill_jvm()
        self.kills["jvm"] += 1
        self.moves += 1
        self.driver.forget_stores(everything=self.random.random() < 0.3)
        self._after = 0  # a new checkpoint counts its batches from the beginning
        self.driver.start()


StreamsChaos.acts = {**PipelineChaos.acts, "other machine": StreamsChaos.other_machine}
StreamsChaos.weighted = (*PipelineChaos.weighted, "other machine", "other machine")
