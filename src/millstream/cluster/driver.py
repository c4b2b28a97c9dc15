"""The controller's body: keeps the image in step with the log and, while this process leads, writes the log.

Tasks share the work. The *applier* tails the log and alone changes the image; after each entry it tells
the listeners, then wakes those who wait for that version. The *leader* campaigns, claims the log, and then
turns commands into entries: one append in flight, and all commands that arrive meanwhile go into the next
entry together (group commit). A command is decided on the image as it will be after the commands before it,
and its reply is given only when its entry is in the log and in this process's image. The *watcher*
(`member_watcher`) tells the leader of brokers that come and go. The *keeper* (`registration_keeper`)
registers this broker again when its registration has ended.

Losing the contest for a position (`Conflict`) means that another process leads: pending commands are answered
NOT_CONTROLLER and this one campaigns again. What the log says and this version cannot understand ends
everything: `failed()` returns, and the broker must stop. What is read at a start is in `metadata_loading`,
what is written for later starts in `metadata_snapshots`.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from millstream.cluster.brokers import unsupported_feature
from millstream.cluster.commands import ClaimController, Command
from millstream.cluster.controller import Context, Decision, decide
from millstream.cluster.image import Delta, Image, difference
from millstream.cluster.member_watcher import MemberWatcher
from millstream.cluster.metadata_loading import check_epoch, load
from millstream.cluster.metadata_records import (
    MAX_ENTRY_BYTES,
    MAX_ENTRY_RECORDS,
    Partition,
    Record,
    UnknownMetadata,
    decode,
    encode,
)
from millstream.cluster.metadata_snapshots import SNAPSHOT_ENTRIES, MetadataSnapshots
from millstream.cluster.pending_commands import PendingCommand, answer, not_controller
from millstream.cluster.registration import Registration
from millstream.cluster.registration_keeper import RegistrationKeeper
from millstream.cluster.security_records import KINDS
from millstream.cluster.store import (
    RETRY_SECONDS,
    Compacted,
    Conflict,
    IdTaken,
    MetadataStore,
    NotWritten,
    StoreBroken,
    StoreClosed,
    Unavailable,
    UnsupportedLevel,
)
from millstream.wire.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

Reply = TypeVar("Reply")
Listener = Callable[[Image, Delta], Awaitable[None] | None]

# Some milliseconds; longer entries are encoded and decoded by a thread.
ENCODED_IN_LOOP = 500  # records
DECODED_IN_LOOP = 16 * 1024  # bytes, which are deflated
APPLIED_AT_ONCE = 500  # records about ACLs, users, quotas and tokens, none of which needs another
PATIENCE = 10.0  # after which a broker that is not let in says so


class _Flight(NamedTuple):
    """The entry being appended; spares the applier the decoding of what this process has just encoded."""

    version: int
    payload: bytes
    records: Sequence[Record]


class Controller:
    """One per broker process. `start` it, `submit` commands to it, read its `image`, `listen` to its
    changes."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: int,
        context: Context,
        snapshot_entries: int = SNAPSHOT_ENTRIES,
    ) -> None:
        self.image = Image()
        self.context = context  # may be replaced by another at any time
        # How large commands leave the loop; may be replaced, too.
        self.run_in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread
        self.broker_id = broker_id
        self.broker_epoch = -1
        self.leading = False
        self.started = False  # it was let into the cluster
        self._store = store
        self._listeners: list[Listener] = []
        self._telling = asyncio.Lock()  # held while the image changes and listeners hear of it
        self._pending: deque[PendingCommand] = deque()
        self._work = asyncio.Event()
        self._one_by_one = 0  # so many of the pending commands go into an entry of their own
        self._flight: _Flight | None = None
        self._informed = 0  # the version that all listeners have heard of
        self._applied = asyncio.Event()
        self._snapshots = MetadataSnapshots(store, snapshot_entries)
        self._watcher = MemberWatcher(self, store)
        self.registration: Registration | None = None  # as it was last sent to the store
        self._keeper = RegistrationKeeper(self, store)
        self._keeping: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._compaction: asyncio.Task[None] | None = None
        self._failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    # --- for the broker -------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Loads the image and keeps it in step with the log from now on. Nobody knows of this broker yet."""
        await self._load()
        self._informed = self.image.version
        self._tasks = [asyncio.create_task(self._guard(self._apply_forever), name="metadata-applier")]

    async def start(self, registration: Registration) -> int:
        """Registers this broker, and returns its epoch once the image shows it.

        Registration comes before the campaign, so that a controller which is alone sees itself alive from the
        first moment, and its return is one entry of the log.
        """
        if not self._tasks:
            await self.follow()
        self.registration = registration
        self._check_levels()
        self.broker_epoch = await self._store.register(self.broker_id, registration.encode())
        self._keeping = asyncio.create_task(self._guard(self._keeper.keep), name="metadata-keeper")
        leader = asyncio.create_task(self._guard(self._lead_forever), name="metadata-leader")
        self._tasks += (self._keeping, leader)
        await self._until_accepted()
        self.started = True
        return self.broker_epoch

    async def _until_accepted(self) -> None:
        while True:
            try:
                async with asyncio.timeout(PATIENCE):
                    return await self._until(self._is_registered)
            except TimeoutError:
                log.warning(
                    "broker %d is registered and waits to be let in by the controller, broker %d; if that "
                    "refuses, its log says why",
                    self.broker_id,
                    self.image.controller_id,
                )

    def submit(self, command: Command[Reply], is_large: bool = False) -> "asyncio.Future[Reply]":
        """Asks the controller. The future fails with `KafkaError` if the command as a whole is refused. A
        large command is decided in a thread."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        if self.leading:
            self._pending.append(PendingCommand(command, future, is_large))
            self._work.set()
        else:
            future.set_exception(not_controller())
        return future

    async def listen(self, listener: Listener) -> None:
        """Calls it now with everything there is, then after each change, before the reply to the
        command that made it.

        What a listener returns is awaited, if it can be; it must not wait for the reply to a command, which
        comes only after it. One that fails is logged and does not stop the log.
        """
        async with self._telling:
            self._listeners.append(listener)
            await self._inform([listener], difference(Image(), self.image))

    async def update(self, registration: Registration) -> None:
        """Changes this broker's registration (to draining, say); the image follows."""
        self.registration = registration
        await self._store.update(registration.encode())

    async def depose(self, broker_id: int, broker_epoch: int) -> None:
        """Somebody else should lead than that life of a broker, which is over. If it is not, the next claim
        in the log tells it."""
        if self.image.controller_id == broker_id != self.broker_id:
            await self._store.depose(broker_id, broker_epoch)

    async def waits_for(self, version: int) -> None:
        """Returns when the image is at that version or a later one, and the listeners know."""
        await self._until(lambda: self._informed >= version)

    def holds_lease(self) -> bool:
        """Whether nobody can have declared this broker dead yet; when not, another may lead what it leads.
        Nor before the image shows the present life: it may be older than the end of the one before."""
        return self._is_registered() and self._store.lease() > time.monotonic()

    def stay_away(self) -> None:
        """From now on, whoever declares this broker dead is right."""
        if self._keeping is not None:
            self._keeping.cancel()

    async def failed(self) -> BaseException:
        """Returns when the metadata can no longer be followed; the broker has to stop."""
        return await asyncio.shield(self._failed)

    async def close(self) -> None:
        """Stops the tasks and closes the store. What is not in the log by now is answered NOT_CONTROLLER."""
        self.resign("the broker is stopping")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Milliseconds, and a broker that never runs for long must compact too.
        if self._compaction is not None:
            await self._compaction
        await self._store.close()

    # --- the applier ----------------------------------------------------------------------------------------

    async def _load(self) -> None:
        loaded = await load(self._store)
        self._snapshots.start_from(loaded)
        self.image.become(loaded.image)

    async def _apply_forever(self) -> None:
        while True:
            try:
                async with aclosing(cast(Any, self._store.tail(self.image.version))) as entries:
                    async for entry in entries:
                        await self._apply(entry.version, entry.payload)
                return
            except Compacted:
                await self._skip_to_snapshot()
            except StoreClosed:
                return

    async def _apply(self, version: int, payload: bytes) -> None:
        if version != self.image.version + 1:
            raise UnknownMetadata(f"entry {version} follows image {self.image.version}")
        flight = self._flight
        if flight is not None and flight.version == version and flight.payload == payload:
            records = flight.records
        else:
            in_thread = len(payload) > DECODED_IN_LOOP
            epoch, records = await self.run_in_thread(decode, payload) if in_thread else decode(payload)
            check_epoch(self.image, epoch, records)
        async with self._telling:
            delta = await self._into_image(records, version)
            self._snapshots.count(records)
            await self._follow(delta)
        if (
            self.leading
            and self._snapshots.is_due()
            and (self._compaction is None or self._compaction.done())
        ):
            self._snapshots.begin()
            compact = partial(self._snapshots.compact, self.image.copy())
            self._compaction = asyncio.create_task(self._guard(compact), name="metadata-snapshot")

    async def _into_image(self, records: Sequence[Record], version: int) -> Delta:
        """What is about topics in one turn of the loop, so that nobody sees one without its partitions."""
        if len(records) <= APPLIED_AT_ONCE or not all(type(record) in KINDS for record in records):
            return self.image.apply(records, version)
        delta = Delta(version)
        for start in range(0, len(records), APPLIED_AT_ONCE):
            self.image.apply_part(records[start : start + APPLIED_AT_ONCE], delta)
            await asyncio.sleep(0)
        self.image.version = version
        return delta

    async def _skip_to_snapshot(self) -> None:
        """The entries that come next are gone: take the snapshot, and tell the difference."""
        async with self._telling:
            before = self.image.copy()
            while True:
                try:
                    await self._load()
                    break
                except Unavailable as problem:
                    log.warning("the metadata cannot be read, trying again: %s", problem)
                    await asyncio.sleep(RETRY_SECONDS)
            await self._follow(difference(before, self.image))

    async def _follow(self, delta: Delta) -> None:
        if delta.controller and self.leading:
            self.resign(f"broker {self.image.controller_id} is the controller")
        if delta.features:
            self._check_levels()
            self._watcher.levels_changed()
        await self._inform(self._listeners, delta)
        self._informed = self.image.version
        self._keeper.notice_own_end()
        self.wake()

    def _check_levels(self) -> None:
        """A level is raised only when every broker of the cluster supports it, so one that cannot follow was
        not in the cluster then: it has to stop, or it would misread what comes."""
        if self.registration is not None:
            problem = unsupported_feature(
                f"broker {self.broker_id}", self.image.features, self.registration.features
            )
            if problem is not None:
                raise UnsupportedLevel(problem)

    async def _inform(self, listeners: list[Listener], delta: Delta) -> None:
        for listener in listeners:
            try:
                following = listener(self.image, delta)
                if following is not None:
                    await following
            except Exception:
                log.exception("a listener failed on metadata version %d", delta.version)

    def wake(self) -> None:
        """Those who wait for something of the image, or of this broker's epoch, look again."""
        waited, self._applied = self._applied, asyncio.Event()
        waited.set()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self._failed.done():
                raise self._failed.result()
            await self._applied.wait()

    def _is_registered(self) -> bool:
        broker = self.image.brokers.get(self.broker_id)
        return broker is not None and broker.epoch == self.broker_epoch

    # --- the leader -----------------------------------------------------------------------------------------

    async def _lead_forever(self) -> None:
        while True:
            await self._store.campaign()
            if self._keeper.unregistered:
                await self._keeper.give_way()
                return
            watchers: list[asyncio.Task[None]] = []
            try:
                await self._claim()
                self._watcher.begin()
                watchers = [
                    asyncio.create_task(self._guard(watch), name="metadata-watcher")
                    for watch in (self._watcher.watch, self._watcher.look_again)
                ]
                while self.leading:
                    await self._work.wait()
                    self._work.clear()
                    while self._pending and self.leading:
                        await self._one_entry()
            except Conflict as problem:
                log.info("broker %d no longer leads: %s", self.broker_id, problem)
            except Unavailable as problem:
                if not self.started:
                    raise
                log.warning("broker %d no longer leads: %s", self.broker_id, problem)
                self.resign("the metadata store did not answer")
                await asyncio.sleep(RETRY_SECONDS)
            finally:
                self.resign("this broker is not the controller")
                for watcher in watchers:
                    watcher.cancel()

    async def _claim(self) -> None:
        """Takes the log over: from this entry on, no append of an earlier controller can succeed."""
        while True:
            at = self.image.version + 1
            decision = decide(self.image, ClaimController(self.broker_id), self.context)
            epoch = cast(int, decision.reply)
            try:
                await self._append(at, decision.records, epoch)
                break
            except Conflict:
                await self.waits_for(at)  # somebody was faster: read on, try again
        if self.image.controller_epoch != epoch:  # and somebody was faster after us
            raise Conflict(f"broker {self.image.controller_id} has claimed the log")
        self.leading = True
        log.info("broker %d is the controller, epoch %d", self.broker_id, epoch)

    async def _append(self, at: int, records: Sequence[Record], epoch: int) -> None:
        if len(records) > ENCODED_IN_LOOP:
            payload = await self.run_in_thread(encode, records, epoch)
        else:
            payload = encode(records, epoch)
        if len(payload) > MAX_ENTRY_BYTES:
            raise _TooLarge
        self._flight = _Flight(at, payload, records)
        try:
            await self._store.append(at, payload)
            await self.waits_for(at)
        finally:
            self._flight = None

    async def _append_all(self, at: int, records: Sequence[Record], may_be_split: bool) -> None:
        """In one entry, or if that is too large, and may be, in several."""
        epoch = self.image.controller_epoch
        try:
            await self._append(at, records, epoch)
        except _TooLarge:
            if not may_be_split:
                raise
            # Until the last entry the image does not know the news: see `Decision`.
            ordered = sorted(records, key=lambda record: not isinstance(record, Partition))
            # At positions that are known beforehand: behind an entry of somebody else, such as another
            # controller's claim, nothing of this epoch may follow.
            for number, start in enumerate(range(0, len(ordered), MAX_ENTRY_RECORDS)):
                await self._append(at + number, ordered[start : start + MAX_ENTRY_RECORDS], epoch)

    async def _one_entry(self) -> None:
        """Puts as many pending commands as fit into one entry, and answers them when it is in the image."""
        batch: list[PendingCommand] = []
        replies: list[object] = []
        records: list[Record] = []
        draft = self.image
        at = self.image.version + 1
        may_be_split = False  # if it is the only one in its batch
        while self._pending and len(records) < MAX_ENTRY_RECORDS:
            if batch and (self._one_by_one or self._pending[0].is_large):
                break
            self._one_by_one = max(self._one_by_one - 1, 0)
            waiting = self._pending.popleft()
            if waiting.future.done():  # the caller has given up
                continue
            if records and draft is self.image:
                draft = self.image.copy()
                draft.apply(records, at)
            if waiting.is_large:
                decision = await self._decide_in_thread(draft, waiting)
            else:
                decision = self._decide(draft, waiting.command)
            if decision.records and draft is not self.image:
                draft.apply(decision.records, at)
            batch.append(waiting)
            replies.append(decision.reply)
            records += decision.records
            may_be_split = decision.may_be_split
        if records:
            try:
                await self._append_all(at, records, may_be_split and len(batch) == 1)
            except _TooLarge:
                if len(batch) > 1:
                    self._pending.extendleft(reversed(batch))
                    self._one_by_one = len(batch)
                    return
                replies = [KafkaError(ErrorCode.policy_violation, "Too many changes for one request.")]
            except NotWritten as problem:
                log.error("metadata not written: %s", problem)
                replies = [KafkaError(ErrorCode.kafka_storage_error, str(problem)) for _ in batch]
            except BaseException:
                answer(batch, [not_controller() for _ in batch])
                raise
        answer(batch, replies)

    def _decide(self, image: Image, command: Command[Any]) -> Decision:
        try:
            return decide(image, command, self.context)
        except Exception:
            log.exception("the controller failed on %s", type(command).__name__)
            return Decision(
                (), KafkaError(ErrorCode.unknown_server_error, "The controller failed on this request.")
            )

    async def _decide_in_thread(self, image: Image, waiting: PendingCommand) -> Decision:
        """For a command with very many elements, which would keep the loop too long."""
        try:
            decided: Decision = await self.run_in_thread(self._decide, image.copy(), waiting.command)
            return decided
        except BaseException:
            answer([waiting], [not_controller()])
            raise

    def resign(self, why: str) -> None:
        """No longer leads; whoever waits is told so."""
        self.leading = False
        self._one_by_one = 0
        pending, self._pending = list(self._pending), deque()
        answer(pending, [not_controller(why) for _ in pending])
        self._work.set()

    # --- the end --------------------------------------------------------------------------------------------

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        """Runs one of the tasks; what it cannot handle itself is the end of this controller."""
        try:
            await work()
        except asyncio.CancelledError:
            raise
        except BaseException as problem:
            if not isinstance(
                problem, StoreBroken | IdTaken | UnsupportedLevel
            ):  # which say it all in one line
                log.exception("the metadata log can no longer be followed")
            if not self._failed.done():
                self._failed.set_result(problem)
            self.resign("the metadata log can no longer be followed")
            self.wake()


class _TooLarge(Exception):
    pass
