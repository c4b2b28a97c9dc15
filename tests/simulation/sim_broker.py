"""One life of a broker: the production code from the controller down to the follower, without sockets.

What server.Broker puts together at its start is put together here in the same order: Controller, Partitions,
ReplicaManager with its ReplicaFetchers, FetchSessions and the serving of Fetch and AlterPartition.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import UUID

from millstream.broker.apis.alter_partition import AlterPartitionApi
from millstream.broker.apis.fetch import Fetch, FetchHandler, Result
from millstream.broker.apis.fetch_sessions import FetchSessions
from millstream.broker.controlled_shutdown import drain
from millstream.broker.network.file_range import FileRange
from millstream.broker.partitions import Partition, Partitions
from millstream.broker.replication.replica_manager import ReplicaManager
from millstream.broker.replication.throttle import ReplicationThrottles
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
        self.fetch = FetchHandler(self.partitions, self.sessions, 1 << 20, 1000)
        self.alter_partition = AlterPartitionApi(self)  # type: ignore[arg-type]
        self.start_task = asyncio.get_running_loop().create_task(self._start(), context=self.context)
        self.start_task.add_done_callback(self._started)

    def __repr__(self) -> str:
        return f"b{self.node_id}"

    @property
    def image(self) -> Image:
        return self.controller.image

    @cached_property
    def replicas(self) -> ReplicaManager:
        return ReplicaManager(self)  # type: ignore[arg-type]

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
        for task in list(self.tasks):
            task.cancel()

    # --- serving --------------------------------------------------------------------------------------------

    def serve_fetch(self, data: bytes, reply: Callable[[bytes], None]) -> None:
        if not self.serving:
            return
        request = read_fetch(memoryview(data), 0, FETCH_VERSION)
        fetch = SimFetch(self.fetch, None, request, FETCH_VERSION, 0)  # type: ignore[arg-type]
        fetch.reply = reply
        try:
            fetch.session, fetch.full = self.sessions.open(request, True, self.world.loop.time())
        except KafkaError as error:
            reply(_joined(pack_fetch_response(0, FETCH_VERSION, error.code, 0, [])))
            return
        if not fetch.try_answer(patient=True):
            wait = self.world.random.random() * request.max_wait_ms / 1000
            self.world.loop.call_later(wait, self._answer_late, fetch, context=self.context)

    def _answer_late(self, fetch: Fetch) -> None:
        if self.alive and self.serving:
            fetch.try_answer(patient=False)

    def serve_alter_partition(self, request: Any, reply: Callable[[Any], None]) -> None:
        if self.alive and self.serving:
            asyncio.get_running_loop().create_task(self._alter_partition(request, reply))

    async def _alter_partition(self, request: Any, reply: Callable[[Any], None]) -> None:
        try:
            reply(await self.alter_partition.alter_partition(FakeCall(request)))  # type: ignore[arg-type]
        except KafkaError:
            reply(REFUSED)

    def is_from_broker(self, call: object) -> bool:
        return True

    # --- clients --------------------------------------------------------------------------------------------

    def produce(
        self, partition: Partition, value: int, acks: int, done: Callable[[int, ErrorCode], None]
    ) -> None:
        """As ProduceHandler does it, for one record."""
        if not partition.open_to_clients or (acks == -1 and not partition.enough_in_sync):
            return
        log: Any = partition.log
        end = log.append_leader(value, partition.leader_epoch)
        self.world.trace(
            f"{self!r} appends {value} to {partition!r} at {end - 1}, epoch {partition.leader_epoch}"
        )
        committed = partition.appended(20, 1, 0)
        if acks == -1:
            if committed:
                done(end - 1, ErrorCode.none)
            else:
                partition.ack_waiters.append(
                    (end, partition.leader_epoch, lambda error: done(end - 1, error))
                )
        partition.wake_fetches()
