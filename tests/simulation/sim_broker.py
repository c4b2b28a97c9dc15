"""One life of a broker: the production code from the controller down to the follower, without sockets.

What server.Broker puts together at its start is put together here in the same order: Controller, Partitions,
ReplicaManager with its ReplicaFetchers, FetchSessions and the serving of Fetch and AlterPartition.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from millstream.broker.apis.alter_partition import AlterPartitionApi
from millstream.broker.apis.fetch import FetchHandler
from millstream.broker.apis.fetch_read import Fetch, Result
from millstream.broker.apis.fetch_sessions import FetchSessions
from millstream.broker.controlled_shutdown import drain
from millstream.broker.network.dispatch import Api
from millstream.broker.network.file_range import FileRange
from millstream.broker.partition import Partition
from millstream.broker.partitions import Partitions
from millstream.broker.replication.replica_manager import ReplicaManager
from millstream.broker.replication.throttle import ReplicationThrottles
from millstream.client.messages import request_header
from millstream.cluster.driver import Controller
from millstream.cluster.image import Delta, Image
from millstream.cluster.metadata_records import Endpoint
from millstream.cluster.registration import Registration
from millstream.cluster.store import Unavailable
from millstream.settings.log_config import LogConfig
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.fetch import pack_fetch_response, read_fetch
from tests.simulation.fake_disk import SimLogDirs
from tests.simulation.fake_network import REFUSED, FakeCall, SimConnections
from tests.simulation.fake_store import SimStore
from tests.simulation.virtual_loop import PROCESS

if TYPE_CHECKING:
    from tests.simulation.world import World

FETCH_VERSION = 17


class SimFetch(Fetch):
    """A fetch whose answer goes to a function instead of a socket."""

    __slots__ = ("reply",)
    reply: Callable[[bytes], None]

    def _answer(self, results: list[Result]) -> None:
        topics: list[Any] = []
        self.group_some(results, topics)
        session_id = self.session.id if self.session is not None else 0
        parts = pack_fetch_response(self.correlation_id, self.version, 0, session_id, topics)
        self.reply(_joined(parts))


def _joined(parts: list[object]) -> bytes:
    """The response from after the correlation id on."""
    return b"".join(
        part.segment.read(part.position, part.size) if isinstance(part, FileRange) else bytes(part)  # type: ignore[call-overload]
        for part in parts
    )[8:]


class SimFetchHandler(FetchHandler):
    """Reads what it sends from logs in memory."""

    quotas = None

    def new_fetch(self, connection: Any, *arguments: Any) -> Fetch:
        fetch = SimFetch(self, connection, *arguments)
        fetch.reply = lambda answer: connection.send(bytes(8) + answer)
        return fetch

    def send_packed(self, connection: Any, packed: list[object]) -> None:
        connection.send(bytes(8) + _joined(packed))

    def send(self, connection: Any, parts: list[Any], cold: list[Any]) -> None:
        self.send_packed(connection, parts)


class FollowerConnection:
    """The leader's end of a follower's connection, as the handler of Fetch sees it."""

    peer = "follower"
    context = SimpleNamespace(name="PLAINTEXT")

    def __init__(self, broker: SimBroker) -> None:
        self.broker, self.loop = broker, broker.world.loop
        self.closed = self.parked = False
        self.pending: Any = None
        self.fast_path: Any = None
        self.reply: Callable[[bytes], None] | None = None
        self.session_id = 0

    def send(self, data: bytes) -> None:
        reply, self.reply = self.reply, None
        if reply is not None and self.broker.alive:
            reply(data[8:])

    def park(self, pending: Any) -> None:
        self.parked, self.pending = True, pending
        self.broker.waiting[self] = None

    def resume(self) -> None:
        self.parked, self.pending = False, None
        self.broker.waiting.pop(self, None)

    def at_end_of_turn(self, work: Callable[[], None]) -> None:
        self.loop.call_soon(work, context=self.broker.context)

    def close(self, reason: str = "") -> None:
        self.closed = True
        pending, self.pending = self.pending, None
        fast_path, self.fast_path = self.fast_path, None
        if pending is not None:
            pending.cancel()
        if fast_path is not None:
            fast_path.leave()


class SimBroker:
    def __init__(self, world: World, node_id: int, life: int) -> None:
        self.world, self.node_id, self.life = world, node_id, life
        self.alive = True
        self.serving = False
        self.stopping = False
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)
        self.settings = world.settings
        self.log_dirs = SimLogDirs(world.disks[node_id], world.checker.make_log_for(node_id))
        self.clock = world.clocks[node_id]
        self.store = SimStore(world, node_id)
        self.connections = SimConnections(world, self)
        self.throttles = ReplicationThrottles()
        self.controller = self.context.run(
            Controller, self.store, node_id, world.decision_context, world.snapshot_entries
        )
        self.partitions = Partitions(node_id, self.log_dirs, self._config_of)  # type: ignore[arg-type]
        self.partitions.replication = lambda: self.replicas
        self.sessions = FetchSessions(100)
        self.sessions._last_id = world.random.randrange(1, 1 << 30)
        self.fetch = SimFetchHandler(self.partitions, self.sessions, 1 << 20, 1000)
        self.fetch.api = Api(1, "Fetch", 4, 18)
        self.followers: dict[int, FollowerConnection] = {}  # by the id of their fetch session
        self.waiting: dict[FollowerConnection, None] = {}
        self.alter_partition = AlterPartitionApi(self)  # type: ignore[arg-type]
        self.add_coordinators()
        asyncio.get_running_loop().create_task(self.store.keep_session(), context=self.context)
        self.start_task = asyncio.get_running_loop().create_task(self._start(), context=self.context)
        self.start_task.add_done_callback(self._started)

    def add_coordinators(self) -> None:
        """For those that have any."""

    def __repr__(self) -> str:
        return f"b{self.node_id}"

    @property
    def image(self) -> Image:
        return self.controller.image

    @cached_property
    def replicas(self) -> ReplicaManager:
        return ReplicaManager(self)  # type: ignore[arg-type]

    @property
    def is_unregistered(self) -> bool:
        return self.controller._keeper.unregistered

    def _config_of(self, topic_id: UUID) -> LogConfig:
        wanted = self.image.topic_config(topic_id).get("min.insync.replicas", "1")
        return LogConfig(min_insync_replicas=int(wanted))

    def registration(self, draining: bool = False) -> Registration:
        return Registration(
            f"{self.node_id}/{self.life}",
            (Endpoint("PLAINTEXT", f"b{self.node_id}", 9092),),
            draining=draining,
            lost_data=self.log_dirs.data_lost,
        )

    # --- life -----------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        try:
            await self.controller.follow()
            self.log_dirs.load()
            await self.controller.start(self.registration())
        except Unavailable as error:
            self.world.trace(f"{self!r} cannot start: {error}")
            self.world.loop.call_soon(self.world.kill, self.node_id, context=contextvars.Context())
            return
        self.log_dirs.data_loss_reported()
        await self.controller.listen(self._metadata_changed)
        self.partitions.set_aside_strays()
        self.serving = True
        self.world.trace(f"b{self.node_id} serves, epoch {self.controller.broker_epoch}")
        problem = await self.controller.failed()
        self.world.checker.violated("I6", f"{self!r} can no longer follow the metadata: {problem!r}")

    def _started(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.world.checker.violated("I10", f"{self!r} cannot start: {task.exception()!r}")

    async def _metadata_changed(self, image: Image, delta: Delta) -> None:
        try:
            await self.partitions.apply(image, delta)
            if delta.brokers and "replicas" in self.__dict__:
                self.replicas.brokers_changed()
        except Exception as problem:  # the controller only logs it
            self.world.checker.violated("I6", f"{self!r} cannot take over the metadata: {problem!r}")
            raise
        self.world.checker.image_changed(self, image)

    async def drain(self) -> None:
        self.stopping = True
        await drain(self.controller, self.registration(draining=True), patience=5.0)

    def end(self) -> None:
        """As kill -9: nothing more is done, sent or heard."""
        self.alive = self.serving = False
        for connection in (*self.followers.values(), *self.waiting):
            connection.close()
        for task in list(self.tasks):
            task.cancel()

    # --- serving --------------------------------------------------------------------------------------------

    def serve_fetch(self, data: bytes, reply: Callable[[bytes], None]) -> None:
        """A request goes to the connection of its session, where the fast path may have learned of it; one
        that comes twice, while the first is at work, to another."""
        if not self.serving:
            return
        request = read_fetch(memoryview(data), 0, FETCH_VERSION)
        connection = self.followers.get(request.session_id)
        if connection is None or connection.parked or self.world.random.random() < 0.05:
            connection = FollowerConnection(self)
        connection.reply = reply
        frame = memoryview(request_header(1, FETCH_VERSION, 0, b"", True) + data)
        fast_path = connection.fast_path
        if fast_path is None or not fast_path.try_handle(connection, frame, 0, len(frame)):
            self.fetch.handle(connection, frame, 0, FETCH_VERSION, 0)  # type: ignore[arg-type]
        learned = connection.fast_path
        if learned is not None and learned is not fast_path:
            old = self.followers.pop(learned.session_id, None)
            if old is not None and old is not connection:
                old.close()
            self.followers[learned.session_id] = connection

    def serve(self, api: str, request: Any, reply: Callable[[Any], None]) -> None:
        """A request of another broker."""
        if self.alive and self.serving:
            asyncio.get_running_loop().create_task(self._serve(api, request, reply))

    async def _serve(self, api: str, request: Any, reply: Callable[[Any], None]) -> None:
        try:
            reply(await self.answer(api, request))
        except KafkaError:
            reply(REFUSED)

    async def answer(self, api: str, request: Any) -> Any:
        assert api == "alter_partition"
        return await self.alter_partition.alter_partition(FakeCall(request))  # type: ignore[arg-type]

    def is_from_broker(self, call: object) -> bool:
        return True

    # --- clients --------------------------------------------------------------------------------------------

    def produce(
        self, partition: Partition, value: int, acks: int, done: Callable[[int, ErrorCode], None]
    ) -> None:
        """As ProduceHandler does it, for one record."""
        if not partition.open_to_clients:
            return
        if acks == -1:
            if not partition.enough_in_sync:
                return
        elif partition.replication is not None and not partition.replication.may_lead():
            return
        log: Any = partition.log
        end = log.append_leader(value, partition.leader_epoch)
        self.world.trace(
            f"{self!r} appends {value} to {partition!r} at {end - 1}, epoch {partition.leader_epoch}"
        )
        committed = partition.appended(20, 1, 0)
        if acks != -1:
            done(end - 1, ErrorCode.none)
        else:
            if committed:
                done(end - 1, ErrorCode.none)
            else:
                partition.ack_waiters.append(
                    (end, partition.leader_epoch, lambda error: done(end - 1, error))
                )
        partition.wake_fetches()
