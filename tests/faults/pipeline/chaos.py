"""What goes wrong with a pipeline, by a seed: kills of workers, JVM, Python driver and broker, and a lost commit file."""

import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

from millstream.testing import Broker
from tests.faults.pipeline.driver import Driver

PATIENCE = 20.0  # seconds that a pipeline gets to finish a batch before it is killed again


class PipelineChaos:
    """Breaks things until the wanted number of kills is reached. Everything runs again after each `once`."""

    acts: ClassVar[dict[str, Callable[[Any], None]]]
    weighted: ClassVar[tuple[str, ...]]

    def __init__(self, broker: Broker, driver: Driver, seed: int, between: float = 0.7) -> None:
        self.broker, self.driver, self.between = broker, driver, between
        self.random = random.Random(f"{seed} pipeline")
        self.kills: Counter[str] = Counter()
        self.lost_commits = 0
        self._after = 0  # batches that were done at the last kill: the next comes when there is another one

    @property
    def total(self) -> int:
        return self.kills.total()

    def once(self, kinds: "tuple[str, ...] | None" = None) -> None:
        kind = self.random.choice(kinds or self.weighted)
        moment = self.random.uniform(0, self.between)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and not (
            self.driver.in_batch and self.driver.batches > self._after
        ):
            time.sleep(0.005)
        time.sleep(moment)
        self.acts[kind](self)
        self._after = self.driver.batches

    def worker(self) -> None:
        if self.driver.kill_worker(self.random):
            self.kills["worker"] += 1

    def restart_broker(self) -> None:
        self.broker.kill()
        self.kills["broker"] += 1
        time.sleep(self.random.uniform(0, 0.5))
        self.broker.start()

    def jvm(self) -> None:
        self.driver.kill_jvm()
        self.kills["jvm"] += 1
        self._start_again()

    def python(self) -> None:
        self.driver.kill_python()
        self.kills["driver"] += 1
        self.driver.start()  # beside a JVM that may still be at work, so its files stay as they are

    def everything(self) -> None:
        """Power cut: the broker and the driver at the same time."""
        self.broker.kill()
        self.driver.kill_jvm()
        self.kills["broker"] += 1
        self.kills["jvm"] += 1
        self.broker.start()
        self._start_again()

    def after_commit(self) -> None:
        """kill -9 right after a batch, and its commit file is gone: Spark does not know that the batch is done."""
        deadline = time.monotonic() + PATIENCE
        while self.driver.in_batch and time.monotonic() < deadline:
            time.sleep(0.001)
        self.jvm()

    def _start_again(self) -> None:
        if self.driver.forget_commit():
            self.lost_commits += 1
        self.driver.start()


PipelineChaos.acts = {
    "worker": PipelineChaos.worker,
    "broker": PipelineChaos.restart_broker,
    "jvm": PipelineChaos.jvm,
    "driver": PipelineChaos.python,
    "power cut": PipelineChaos.everything,
    "lost commit": PipelineChaos.after_commit,
}
PipelineChaos.weighted = ("worker",) * 18 + ("broker",) * 14 + ("jvm", "driver", "power cut", "lost commit")
