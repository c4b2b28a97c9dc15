"""What goes wrong with an application on Spark, by a seed: kills of workers, JVM, Python driver and broker, a
lost commit file, and, where there are local stores, another machine that does not have them."""

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from millstream.testing import Broker
from tests.faults.spark.driver import Driver
from tests.support.waiting import wait_until

# In a long run a batch gets so many seconds before the next kill, so that kills also hit what recovers from
# one.
RESTLESS = 20.0


class Chaos:
    """Breaks things one after the other. Everything runs again after each `once`."""

    def __init__(
        self,
        broker: Broker,
        driver: Driver,
        seed: int,
        *,
        lose_stores: Callable[[bool], None] | None = None,
        patience: float = RESTLESS,
        hasty: float = 0.0,
        between: float = 0.7,
    ) -> None:
        """`lose_stores` removes local state: all of it, or all but the checkpoint. `patience` is for a batch
        that a kill waits for, and for a worker to kill; what does not come in that time is not waited for.
        `hasty` is the share of kills that do not wait: they hit what recovers."""
        self.broker, self.driver, self.between, self.patience = broker, driver, between, patience
        self.hasty = hasty
        self.random = random.Random(f"{seed} pipeline")
        self.kills: Counter[str] = Counter()
        self.lost_commits = 0
        self.moves = 0
        self._lose_stores = lose_stores
        # Batches that were done at the last kill: the next kill comes when there is another one.
        self._batches_before = 0
        self.acts: dict[str, Callable[[], None]] = {
            "worker": self.worker,
            "broker": self.restart_broker,
            "jvm": self.jvm,
            "driver": self.python,
            "power cut": self.everything,
            "lost commit": self.after_commit,
        }
        self._weighted = []
        for act, weight in driver.WEIGHTS.items():
            self.acts.setdefault(act, partial(self.part, act))
            self._weighted += [act] * weight
        if lose_stores is not None:
            self.acts["other machine"] = self.other_machine
            self._weighted += ["other machine"] * 2

    @property
    def total(self) -> int:
        return self.kills.total()

    def once(self, act: str | None = None) -> str:
        """One thing that goes wrong, in the middle of a batch. What it was."""
        act = act or self.random.choice(self._weighted)
        moment = self.random.uniform(0, self.between)
        if self.hasty and self.random.random() < self.hasty:
            moment = self.random.uniform(0, RESTLESS)
        else:
            self._wait(lambda: self.driver.in_batch and self.driver.batches > self._batches_before, 0.005)
        # At any moment of the batch.
        time.sleep(moment)
        self.acts[act]()
        self._batches_before = self.driver.batches
        return act

    def _wait(self, condition: Callable[[], bool], interval: float) -> None:
        with contextlib.suppress(AssertionError):
            wait_until(condition, patience=self.patience, interval=interval)

    def worker(self) -> None:
        def kill() -> bool:
            self.kills["worker"] += (found := self.driver.kill_worker(self.random))
            return found

        self._wait(kill, 0.02)

    def restart_broker(self) -> None:
        self.broker.kill()
        self.kills["broker"] += 1
        # Away for longer or shorter.
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

    def part(self, part: str) -> None:
        """Something that only this application has; the others of its kind have a moment to take over."""
        self.driver.kill_part(part, self.random)
        self.kills[part] += 1
        if self.random.random() < 0.5:
            before = self.driver.batches
            with contextlib.suppress(AssertionError):
                wait_until(lambda: self.driver.batches > before, patience=RESTLESS, interval=0.1)
        self.driver.start()

    def everything(self) -> None:
        """Power cut: the broker and the driver at the same time."""
        self.broker.kill()
        self.driver.kill_jvm()
        self.kills["broker"] += 1
        self.kills["jvm"] += 1
        self.broker.start()
        self._start_again()

    def after_commit(self) -> None:
        """kill -9 right after a batch, and its commit file is gone: Spark does not know that the batch is
        done."""
        self._wait(lambda: not self.driver.in_batch, 0.001)
        self.jvm()

    def other_machine(self) -> None:
        """The application goes on where its local stores are not, and perhaps not even Spark's checkpoint."""
        self.driver.kill_jvm()
        self.kills["jvm"] += 1
        self.moves += 1
        assert self._lose_stores is not None
        self._lose_stores(self.random.random() < 0.3)
        # A new checkpoint counts its batches from the beginning.
        self._batches_before = 0
        self.driver.start()

    def _start_again(self) -> None:
        if self.driver.forget_commit():
            self.lost_commits += 1
        self.driver.start()
