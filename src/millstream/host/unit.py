"""What runs on the host: a unit, and where it comes from.

A unit is made, polled, committed and closed by one thread, its lane's. It never waits for anything but its
own cluster, and never for long: other units have their turns after it. What it did is seen by nobody before
its commit, and is done again by whoever continues after it otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from millstream.client import ClientConfig, Cluster
from millstream.client.fetch import Fetched
from millstream.client.transaction_commits import TransactionCommit
from millstream.wire.topic_partition import TopicPartition


class UnitId(NamedTuple):
    """A unit's application, and its name there (of a Streams task: its sub-topology and partition, "0_3")."""

    application: str
    name: str

    def __str__(self) -> str:
        return f"{self.application}/{self.name}"


@dataclass(slots=True)
class UnitStatus:
    """What a unit has done since its lane opened it. `lag` is what the brokers said last."""

    read: int = 0
    written: int = 0
    commits: int = 0
    lag: int = 0
    restored: int = 0


class Unit(Protocol):
    status: UnitStatus
    fetch_bytes: int
    """What to fetch of a partition at a time."""

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """What the lane is to fetch for it, and where from. A partition that the unit has enough of for the
        moment is left out."""

    def receive(self, fetched: Fetched) -> None:
        """What a partition answered. Moves its position; the work is done by `poll`."""

    def poll(self) -> bool:
        """Work on some of what was received, or of what the unit gets by itself. True if there is more to be
        done at once."""

    @property
    def due(self) -> float | None:
        """When `poll` is wanted though nothing came, by time.monotonic()."""

    @property
    def uncommitted(self) -> bool:
        """Whether there is something to commit."""

    @property
    def full(self) -> bool:
        """Whether to commit now rather than at the end of the interval: the transaction is large."""

    def prepare_commit(self) -> TransactionCommit | None:
        """All that was done since the last commit, as one transaction. A unit without transactions commits
        here, and returns None."""

    def committed(self, commit: TransactionCommit | None) -> None:
        """It is in the cluster: local state may follow."""

    def close(self) -> None:
        """The unit goes elsewhere, or ends. What is not committed is dropped."""

    def abandon(self) -> None:
        """The same after an error."""


class LaneContext(Protocol):
    """What a lane has for its units."""

    machine: str

    def cluster(self, config: ClientConfig) -> Cluster:
        """The connections that all units of this lane share for everything but fetching."""

    def shared(self, key: Any, make: Callable[[], Any]) -> Any:
        """Something that the units of this lane have in common, such as a global table. It is closed after
        the last unit of its application."""


OpenUnit = Callable[[str, LaneContext], Unit]
"""Makes the unit of a name. It travels to the lanes by value."""


@dataclass(frozen=True, slots=True)
class Application:
    """What a host is asked to run: units by name, all made by `open_unit` on one cluster.

    stateful    units that keep something on a machine's disk: they go back there when they can
    """

    id: str
    client: ClientConfig
    open_unit: OpenUnit
    units: tuple[str, ...]
    stateful: frozenset[str] = field(default_factory=frozenset)
