"""What happens to a cluster: brokers and ZooKeepers that are killed, stopped, or stand still, and links that
are cut; one at a time or two at once. Targets are chosen by what they do: the leader of a partition, a
coordinator, the controller, ZooKeeper's leader or its quorum.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from millstream.testing import BrokerFailed

from .links import Link
from .processes import Processes

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


@dataclass
class Fault:
    """`begin`, some seconds, `end`: afterwards everything runs again."""

    name: str
    targets: set[str]
    begin: Callable[[], None]
    end: Callable[[], None]
    seconds: float = 0.0
    takes_quorum: bool = False


@dataclass
class ClusterChaos:
    """Breaks a cluster, again and again; what and for how long depends on the seed, whom on who leads."""

    processes: Processes
    topics: list[str]
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.seed} cluster chaos")

    @property
    def done(self) -> int:
        return self.counts.total()

    def wait(self, longest: float) -> None:
        # Things go wrong at any moment.
        time.sleep(self.random.uniform(0.05, longest))

    def once(self) -> None:
        """One fault, or two at once. Everything runs again when it returns."""
        faults = [self._fault(set())]
        if self.random.random() < 0.2:
            faults.append(self._fault(faults[0].targets))
        for fault in faults:
            fault.seconds = self.random.uniform(0.2, 8.0 if self.random.random() < 0.15 else 3.0)
            fault.begin()
        shortest = min(fault.seconds for fault in faults)
        for fault in faults:
            if fault.takes_quorum:  # a broker that starts waits for it, and this thread for the broker
                fault.seconds = shortest
        passed = 0.0
        for fault in sorted(faults, key=lambda each: (each.seconds, not each.takes_quorum)):
            time.sleep(fault.seconds - passed)
            passed = fault.seconds
            fault.end()
            self.counts[fault.name] += 1
        for name, broker in self.processes.brokers.items():
            if not broker.running:
                self.problems.append(f"{name} ended by itself: {broker.log[-1500:]}")
                broker.start()

    # --- choosing -------------------------------------------------------------------------------------------

    def _fault(self, taken: set[str]) -> Fault:
        while True:
            choice = self.random.random()
            if choice < 0.75:
                role, name = self._broker()
                fault = self.random.choice(
                    (self._kill, self._kill, self._terminate, self._pause, self._isolate, self._cut)
                )(role, name)
            else:
                fault = self._zookeeper()
            if not fault.targets & taken:
                return fault

    def _broker(self) -> tuple[str, str]:
        """A role, and the broker that has it now."""
        role = self.random.choice(
            ("leader", "controller", "group coordinator", "transaction coordinator", "any")
        )
        if role == "controller":
            return role, self.processes.controller(self.random)
        if role == "any":
            return role, self.random.choice(list(self.processes.brokers))
        topic = {
            "leader": self.random.choice(self.topics),
            "group coordinator": OFFSETS,
            "transaction coordinator": TRANSACTIONS,
        }[role]
        return role, self.processes.leader(topic, self.random)

    # --- faults of brokers ----------------------------------------------------------------------------------

    def _kill(self, role: str, name: str) -> Fault:
        broker = self.processes.brokers[name]
        again = self.random.random() < 0.15  # once more, in the middle of its recovery
        delay = self.random.uniform(0.0, 0.6)

        def begin() -> None:
            broker.kill()
            self.processes.links.close_door(name)

        def end() -> None:
            self.processes.links.open_door(name)
            if again:
                broker.start(wait=False)
                time.sleep(delay)
                broker.kill()
            broker.start()

        return Fault(f"kill {role}", {name}, begin, end)

    def _terminate(self, role: str, name: str) -> Fault:
        """SIGTERM: it hands over what it leads, and ends with 0, also if nobody takes it."""
        broker = self.processes.brokers[name]

        def stop() -> None:
            try:
                broker.stop()
            except BrokerFailed as failed:
                self.problems.append(f"{name}: {str(failed)[:2000]}")

        stopping = threading.Thread(target=stop, name=f"stop {name}")

        def end() -> None:
            stopping.join()
            broker.start()

        return Fault(f"terminate {role}", {name}, stopping.start, end)

    def _pause(self, role: str, name: str) -> Fault:
        broker = self.processes.brokers[name]
        return Fault(f"pause {role}", {name}, broker.pause, broker.resume)

    def _isolate(self, role: str, name: str) -> Fault:
        """From everybody, or from ZooKeeper alone. Clients still reach it."""
        links = self.processes.links_of(name)
        what = "isolate"
        if self.random.random() < 0.4:
            links = [link for link in links if link.target in self.processes.zookeepers]
            what = "no ZooKeeper for"
        return self._cutting(f"{what} {role}", {name}, links)

    def _cut(self, role: str, name: str) -> Fault:
        """From one other broker, in one direction or in both."""
        other = self.random.choice([each for each in self.processes.brokers if each != name])
        links = [Link(name, other), Link(other, name)][: self.random.choice((1, 2))]
        return self._cutting(f"cut a link of {role}", {name, other}, links)

    def _cutting(self, name: str, targets: set[str], links: list[Link]) -> Fault:
        silent = self.random.random() < 0.7

        def begin() -> None:
            for link in links:
                self.processes.links.cut(link, silent)

        def end() -> None:
            for link in links:
                self.processes.links.heal(link)

        return Fault(name, targets, begin, end)

    # --- faults of ZooKeeper --------------------------------------------------------------------------------

    def _zookeeper(self) -> Fault:
        choice = self.random.random()
        leader = self.processes.zookeeper_leader(self.random)
        servers = self.processes.zookeepers
        if choice < 0.3:
            return Fault("pause ZooKeeper's leader", {leader}, servers[leader].pause, servers[leader].resume)
        others = [name for name in servers if name != leader]
        if choice < 0.55:
            return self._kill_zookeepers("kill ZooKeeper's leader", [leader])
        if choice < 0.75:
            return self._kill_zookeepers("kill a follower of ZooKeeper", [self.random.choice(others)])
        fault = self._kill_zookeepers("kill ZooKeeper's quorum", [leader, self.random.choice(others)])
        fault.takes_quorum = True
        return fault

    def _kill_zookeepers(self, what: str, names: list[str]) -> Fault:
        servers = [self.processes.zookeepers[name] for name in names]

        def begin() -> None:
            for name, server in zip(names, servers, strict=True):
                server.kill()
                self.processes.links.close_door(name)

        def end() -> None:
            for name, server in zip(names, servers, strict=True):
                server.begin()
                self.processes.links.open_door(name)
            for server in servers:
                server.until_ready()

        # Two at once would leave one of three: a second fault takes brokers.
        return Fault(what, set(self.processes.zookeepers), begin, end)
