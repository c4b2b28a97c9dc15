"""What runs on the host: a unit, and where it comes from.

A unit is made, polled, committed and closed by one thread, its lane's. It never waits for anything but its
own cluster, and never for long: other units have their turns after it. What it did is seen by nobody before
its commit, and is done again by whoever continues after it otherwise.

A unit that has to wait for other people's servers (a connector's task) is named in `Application.waiting`. Its
turns are taken in threads beside the lane's loop, one at a time but not always the same thread; everything
else is as above. It may stay in a turn for seconds, and nobody but itself is held up by that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from millstream.client import ClientConfig, Cluster
from millstream.client.fetch import Fetched
from millstream.client.transaction_commits import TransactionCommit
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.host.ownership import Claim


class UnitId(NamedTuple):
    """A unit's application, and its name there (of a Streams task: its sub-topology and partition, "0_3")."""

    application: str
    name: str

    def __str__(self) -> str:
        return f"{self.application}/{self.name}"


@dataclass(slots=True)
class UnitStatus:
    """What a unit has done since its lane opened it. `lag` is what the brokers said last, `commit_ms` how
    long its last commit took (the lane's to fill in), `state_bytes` the size of its stores, `metrics` what
    the application counts itself, by its names."""

    read: int = 0
    written: int = 0
    commits: int = 0
    lag: int = 0
    restored: int = 0
    commit_ms: float = 0.0
    state_bytes: int = 0
    metrics: dict[str, float] = field(default_factory=dict)


class UnitState(NamedTuple):
    """Where a unit stands: `state` is one of the planner's (running, starting, waiting, set aside, failed);
    `error` and `trace` are of its last failure."""

    state: str
    lane: str | None
    error: str | None
    status: UnitStatus
    trace: str = ""
    machine: str | None = None


class Ended(NamedTuple):
    """Of an application that was removed: whether all lanes let go of its units in time, and what these had
    done, their last commits included."""

    in_time: bool
    statuses: dict[str, UnitStatus]


UnitListener = Callable[[UnitId, UnitState], None]
"""Hears of every change of a unit's state, in order, in a thread of the planner."""


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
        """The connections that all units of this lane share for everything but fetching. A waiting unit has
        its own, because connections are for one thread at a time."""

    def shared(self, key: Any, make: Callable[[], Any]) -> Any:
        """Something that the units of a process have in common, such as a global table. `key` begins with
        the application; what was made is closed after its last unit here."""

    def claim(self, config: ClientConfig, application: str, name: str, timeout_ms: int) -> Claim:
        """The right to commit in the lane's transactions, of `timeout_ms`, for the unit that is being opened.
        Given back after the unit was closed or abandoned."""


OpenUnit = Callable[[str, LaneContext], Unit]
"""Makes the unit of a name. It travels to the lanes by value."""


@dataclass(frozen=True, slots=True)
class Application:
    """What a host is asked to run: units by name, all made by `open_unit` on one cluster.

    stateful       units that keep something on a machine's disk: they go back there when they can
    waiting        units that wait for other people's servers: threads beside the loop take their turns
    dedicated      units that have a lane of their own, as long as there are enough lanes
    open_standby   makes a standby copy of a unit with state, and
    standbys       how many of each there are, each on another machine (num.standby.replicas)
    """

    id: str
    client: ClientConfig
    open_unit: OpenUnit
    units: tuple[str, ...]
    stateful: frozenset[str] = field(default_factory=frozenset)
    waiting: frozenset[str] = field(default_factory=frozenset)
    dedicated: frozenset[str] = field(default_factory=frozenset)
    open_standby: OpenUnit | None = None
    standbys: int = 0

    def with_units(
        self,
        names: Iterable[str],
        stateful: Iterable[str],
        waiting: Iterable[str] | None,
        dedicated: Iterable[str] | None,
    ) -> Application:
        """The same with other units. What is None stays as it is."""
        return replace(
            self,
            units=tuple(names),
            stateful=frozenset(stateful),
            waiting=self.waiting if waiting is None else frozenset(waiting),
            dedicated=self.dedicated if dedicated is None else frozenset(dedicated),
        )


def standby_name(name: str) -> str | None:
    """The unit that a name is a standby copy of."""
    of, tilde, _ = name.partition("~")
    return of if tilde else None
