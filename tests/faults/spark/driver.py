"""The driver process of an application on Spark: started, killed in parts or whole, and started again."""

import contextlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import psutil

from tests.faults.spark.supervise import FAILED, STARTED
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
START_PATIENCE = 600.0


class Driver:
    """Python driver, JVM and Python workers: one tree of processes."""

    # How often what goes wrong, in parts; what `Chaos` does not know is for `kill_part`.
    WEIGHTS: ClassVar[dict[str, int]] = {
        "worker": 18,
        "broker": 14,
        "jvm": 1,
        "driver": 1,
        "power cut": 1,
        "lost commit": 1,
    }

    def __init__(self, command: Sequence[str], source: str, checkpoint: Path, log: Path) -> None:
        """`command` is the module to run and its arguments; `source` the topic whose offsets Spark's
        checkpoint names."""
        self.checkpoint = checkpoint
        self.log = log
        self._command = [sys.executable, "-m", *command]
        self._source = source
        self._process: subprocess.Popen[bytes] | None = None
        self._seen: dict[int, psutil.Process] = {}
        log.touch()

    def start(self) -> None:
        """Start, and wait until the query runs."""
        starts_before = self._starts()
        with self.log.open("ab") as out:
            process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=out, stderr=out, cwd=ROOT, env={**os.environ}
            )
        self._process = process
        wait_until(
            lambda: self._starts() > starts_before or process.poll() is not None,
            lambda: f"the application did not start:\n{self.tail()}",
            patience=START_PATIENCE,
            interval=0.05,
        )
        if process.poll() is not None:
            raise RuntimeError(f"the application ended while starting:\n{self.tail()}")

    def tail(self) -> str:
        """The end of what it printed."""
        return self.log.read_text(errors="replace")[-3000:]

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def failures(self) -> list[str]:
        """Why the query ended, each time that it did."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if line.startswith(FAILED)]

    @property
    def in_batch(self) -> bool:
        """Whether Spark has begun a batch that it has not finished."""
        return self._newest("offsets") > self._newest("commits")

    @property
    def batches(self) -> int:
        """How many batches Spark has finished."""
        return self._newest("commits") + 1

    @property
    def progress(self) -> str:
        return f"{self.batches} batches"

    @property
    def planned(self) -> int:
        """How many inputs are in the batches so far, the one that runs included."""
        newest = self._newest("offsets")
        try:
            written = json.loads((self.checkpoint / "offsets" / str(newest)).read_text().splitlines()[-1])
            return sum(written["offsets"][self._source].values())
        except (OSError, ValueError, LookupError):
            return 0

    def _newest(self, folder: str) -> int:
        return max(
            (int(path.name) for path in (self.checkpoint / folder).glob("*") if path.name.isdigit()),
            default=-1,
        )

    # --- kills ---

    def kill_worker(self, source: random.Random) -> bool:
        """kill -9 of one Python worker, if there is one now."""
        workers = [p for p in self.tree() if is_worker(p)]
        if not workers:
            return False
        return kill(source.choice(workers))

    def kill_jvm(self) -> None:
        """kill -9 of the JVM; the Python driver has nothing to do without it, and ends."""
        for process in self.tree():
            with contextlib.suppress(psutil.Error):
                if process.name() == "java":
                    kill(process)
        self._wait()

    def kill_python(self) -> None:
        """kill -9 of the Python driver. The JVM notices a moment later: until then it is a zombie that still
        writes."""
        self.tree()
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def kill_part(self, part: str, source: random.Random) -> None:
        raise NotImplementedError(part)

    def forget_commit(self) -> bool:
        """Remove Spark's newest commit file, as if the driver had died before it wrote that."""
        newest = self._newest("commits")
        if newest < 0 or self._newest("offsets") > newest:
            return False  # the newest batch is to be replayed anyway
        (self.checkpoint / "commits" / str(newest)).unlink()
        (self.checkpoint / "commits" / f".{newest}.crc").unlink(missing_ok=True)
        return True

    def stop(self) -> None:
        """End the whole tree."""
        self.tree()
        if self._process is not None:
            self._process.kill()
            self._wait()
        for process in self._seen.values():
            kill(process)

    def _wait(self) -> None:
        if self._process is not None:
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def tree(self) -> list[psutil.Process]:
        if self._process is None or self._process.poll() is not None:
            return []
        try:
            found = psutil.Process(self._process.pid).children(recursive=True)
        except psutil.Error:
            return []
        self._seen.update((process.pid, process) for process in found)
        return found

    def _starts(self) -> int:
        return self.log.read_text(errors="replace").splitlines().count(STARTED)


def is_worker(process: psutil.Process) -> bool:
    """A fork of the daemon: the same command line as its parent."""
    try:
        mine = process.cmdline()
        parent = process.parent()
        return any("daemon" in part for part in mine) and parent is not None and parent.cmdline() == mine
    except psutil.Error:
        return False


def kill(process: psutil.Process) -> bool:
    try:
        process.kill()  # psutil makes sure that the number still means the same process
        return True
    except psutil.Error:
        return False
