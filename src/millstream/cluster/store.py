"""Where the metadata log is kept: what every store promises.

All safety rests on one promise of `append`: an entry goes to exactly the position it names, once, or the
caller hears `Conflict`. Order, fencing of old controllers and compare-and-set all follow from it.
`LocalStore` keeps the log in a file, for a cluster of one; `ZooKeeperStore` in ZooKeeper, for several
brokers. Every store passes the contract tests of tests/cluster/store_contract.py.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Version = int  # position in the metadata log; 0 = empty

RETRY_SECONDS = 1.0  # after which a store that was unavailable is asked again


@dataclass(frozen=True, slots=True)
class Entry:
    version: Version
    writer: str  # uuid of the process that wrote it
    payload: bytes


@dataclass(frozen=True, slots=True)
class Member:
    broker_id: int
    epoch: int  # never reused, grows
    data: bytes


class StoreError(Exception):
    """The metadata store could not carry out a request."""


class Conflict(StoreError):
    """Another writer holds that position."""


class Compacted(StoreError):
    """The requested entries are gone; the snapshot holds their sum."""


class IdTaken(StoreError):
    """Another process is registered under this broker id."""


class UnsupportedLevel(StoreError):
    """The log follows a feature level that this broker does not support."""


class Unavailable(StoreError):
    """Outcome unknown, or no quorum; the store has already retried."""


class NotWritten(Unavailable):
    """Nothing was written, for certain (the disk is full, say). The store goes on; so can its caller."""


class StoreBroken(StoreError):
    """The store has failed for good, whether the last entry is there is unknown; the process has to start
    again."""


class StoreClosed(StoreError):
    """The store was closed before or during the request."""


class MetadataStore(Protocol):
    # the log
    async def snapshot(self) -> tuple[Version, list[bytes]]:
        """The newest snapshot, (0, []) if there is none."""
        ...

    async def read(self, after: Version, limit: int = 100) -> list[Entry]:
        """Entries after that position, in order; raises `Compacted` if they have been deleted."""
        ...

    async def append(self, at: Version, payload: bytes) -> None:
        """Exactly once at `at`, durable on return; or `Conflict`."""
        ...

    def tail(self, after: Version) -> AsyncIterator[Entry]:
        """Every later entry, in order, no gap, no repeat; ends when the store is closed."""
        ...

    async def compact(self, at: Version, chunks: Sequence[bytes], keep: int) -> None:
        """Makes `chunks` the snapshot of position `at`; the last `keep` entries up to there stay readable."""
        ...

    # liveness
    async def register(self, broker_id: int, data: bytes) -> int:
        """Makes this process a member; returns the broker epoch. Raises `IdTaken`."""
        ...

    async def update(self, data: bytes) -> None:
        """Changes the data of one's own registration, e.g. to draining."""
        ...

    def members(self) -> AsyncIterator[Mapping[int, Member]]:
        """The members now, and again after each change."""
        ...

    async def campaign(self) -> None:
        """Returns when this process should lead."""
        ...

    async def depose(self, broker_id: int, epoch: int) -> None:
        """The process that registered with this epoch is gone: if it is the one that should lead, another
        campaign may end now. A later life of the same broker is left alone. A hint, like the campaign
        itself; only the log says who leads."""
        ...

    def lease(self) -> float:
        """Monotonic time until which nobody can have expired us; inf for a local store."""
        ...

    async def lost(self) -> None:
        """Returns when the session is gone."""
        ...

    async def close(self) -> None: ...
