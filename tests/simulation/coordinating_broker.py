"""A broker with its coordinators: groups and transactions, as server.Broker puts them together.

Between brokers, markers and questions about transactions go over the simulated network. What clients send is
called here directly, by the functions that the API modules call.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from millstream.broker.apis.produce import ProduceHandler
from millstream.broker.apis.transactions import TransactionsApi
from millstream.broker.coordinators.groups.coordinator import GroupCoordinator
from millstream.broker.coordinators.groups.group import Committer
from millstream.broker.coordinators.groups.offset_records import offset_value, parse_offset_value
from millstream.broker.coordinators.transactions.coordinator import TransactionCoordinator
from millstream.broker.coordinators.transactions.transaction_state import Outcome
from millstream.broker.coordinators.transactions.verification import TransactionVerifier, verdict_of
from millstream.cluster.commands import AllocateProducerIds
from millstream.cluster.image import Delta, Image
from millstream.cluster.registration import Registration
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.produce import ProduceRequest
from millstream.wire.topic_partition import TopicPartition
from tests.simulation.fake_network import FakeCall, SimConnections, finished
from tests.simulation.sim_broker import SimBroker

HOUSEKEEPING = 1.0
PRODUCE_THAT_ADDS, PRODUCE_THAT_VERIFIES = 12, 11
OFFSETS_THAT_ADD, OFFSETS_THAT_VERIFY = 5, 3
NOBODY = ""


class CoordinatingBroker(SimBroker):
    alone = False
    authorizer = None

    def add_coordinators(self) -> None:
        loop = asyncio.get_running_loop()
        self.forwarding = self
        self.groups = GroupCoordinator(self, loop)  # type: ignore[arg-type]
        self.transactions = TransactionCoordinator(self)  # type: ignore[arg-type]
        self.verifier = TransactionVerifier(self.transactions)
        self.transactions_api = TransactionsApi(self)  # type: ignore[arg-type]
        self.produce_handler = ProduceHandler(self.partitions, loop)
        for runtime in (self.groups.runtime, self.transactions.runtime):
            self.partitions.coordinated[runtime.topic] = runtime
        self._housekeeping = loop.create_task(self._keep_house(), context=self.context)

    @property
    def epoch(self) -> int:
        return self.controller.broker_epoch

    def registration(self, draining: bool = False) -> Registration:
        made = super().registration(draining)
        return Registration(
            made.incarnation,
            made.endpoints,
            features=dict(self.world.features),
            draining=draining,
            lost_data=made.lost_data,
        )

    async def _metadata_changed(self, image: Image, delta: Delta) -> None:
        await super()._metadata_changed(image, delta)
        self.groups.metadata_changed(delta)

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING)
            with suppress(KafkaError):
                await self.transactions.abort_timed_out()

    def end(self) -> None:
        super().end()
        # Timers of a dead process ring for nobody.
        for runtime in (self.groups.runtime, self.transactions.runtime):
            contextvars.Context().run(runtime.close)
        self.groups.close()
        self.transactions.markers.close()

    # --- other brokers --------------------------------------------------------------------------------------

    def new_connections(self, purpose: str) -> SimConnections:
        return self.connections

    async def ask_controller(self, api: str, **fields: Any) -> Any:
        return await self.connections.request(self.image.controller_id, api, **fields)

    async def answer(self, api: str, request: Any) -> Any:
        if api == "write_txn_markers":
            return await _whole(self.transactions_api.write_markers(FakeCall(request, 2)))  # type: ignore[arg-type]
        if api == "add_partitions_to_txn":
            return await _whole(self.transactions_api.add_partitions(FakeCall(request, 5)))  # type: ignore[arg-type]
        if api == "allocate_producer_ids":
            block = await self.controller.submit(AllocateProducerIds(request.broker_id, request.broker_epoch))
            return SimpleNamespace(
                error_code=ErrorCode.none, producer_id_start=block.first, producer_id_len=block.count
            )
        return await super().answer(api, request)

    # --- clients --------------------------------------------------------------------------------------------

    async def init_producer_id(self, transactional_id: str, timeout_ms: int) -> Outcome:
        return await _outcome(self.transactions.init_producer_id(transactional_id, timeout_ms, None))

    async def add_partitions(
        self, transactional_id: str, identity: tuple[int, int], partitions: list[TopicPartition]
    ) -> ErrorCode:
        answer = self.transactions.add_partitions(transactional_id, *identity, partitions, client_version=0)
        return (await _outcome(answer)).error

    async def end_transaction(
        self, transactional_id: str, identity: tuple[int, int], commit: bool, client_version: int
    ) -> Outcome:
        return await _outcome(self.transactions.end(transactional_id, *identity, commit, client_version))

    async def produce_batch(
        self, where: TopicPartition, batch: bytes, transactional_id: str, version: int
    ) -> ErrorCode:
        """As ProduceHandler.handle, with acks=all."""
        topics = [(where.topic.encode(), [(where.partition, memoryview(bytearray(batch)))])]
        request = ProduceRequest(transactional_id.encode(), -1, 30_000, topics)
        table = self.partitions.by_name
        verdict: Any = None
        while isinstance(judged := self.verifier.verify(request, table, version, verdict), asyncio.Future):
            verdict = verdict_of(await judged)
        answer, waiting, woken, _ = self.produce_handler.write(topics, table, -1, version, True, judged, None)
        for partition in woken:
            partition.wake_fetches()
        error = ErrorCode(answer[0][1][0].error)
        if waiting is None:
            return error
        ((partition, end, _, _),) = waiting
        committed: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def acknowledge(code: ErrorCode) -> None:
            if not committed.done():
                committed.set_result(code)

        partition.ack_waiters.append((end, partition.leader_epoch, acknowledge))
        return await committed

    async def commit_offset(
        self,
        group: str,
        where: TopicPartition,
        offset: int,
        transaction: tuple[str, tuple[int, int], int] | None = None,
    ) -> ErrorCode:
        """OffsetCommit, or with (transactional id, identity, version) TxnOffsetCommit."""
        topic = self.image.topic(where.topic)
        ids: Mapping[str, Any] = {where.topic: None if topic is None else topic.topic_id}
        commits = {(where.topic, where.partition): offset_value(offset, -1, "", 0)}
        try:
            if transaction is None:
                waiting = self.groups.commit_offsets(group, Committer(NOBODY, None, -1, 9), ids, commits)
                if waiting is not None:
                    await waiting
            else:
                name, identity, version = transaction
                committer = Committer(NOBODY, None, -1, version, transactional=True)
                await self.groups.commit_offsets_in_transaction(
                    group, name, identity, committer, ids, commits
                )
        except KafkaError as error:
            return error.code
        return ErrorCode.none

    def committed_offset(self, group: str, where: TopicPartition) -> tuple[int, int]:
        """The offset, and the leader epoch of the shard that knows it. Raises KafkaError."""
        shard = self.groups.runtime.shard(group)
        value = shard.offsets.get(group, where.topic, where.partition)
        return (-1 if value is None else parse_offset_value(value).offset), shard.epoch


async def _whole(slices: Any) -> Any:
    answer = finished(slices)
    return await answer if asyncio.iscoroutine(answer) else answer


async def _outcome(answer: Any) -> Outcome:
    found: Outcome = await answer if isinstance(answer, asyncio.Future) else answer
    return found
