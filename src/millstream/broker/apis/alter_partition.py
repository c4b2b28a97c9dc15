"""AlterPartition 3: a leader asks the controller for another ISR (KIP-497). Between brokers only.

     3  broker epochs of the members, so that an earlier life of a replica cannot join (KIP-903)

The response says what was accepted; what has become of the partition, everybody learns from the image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from millstream.broker.network.dispatch import Api, Call
from millstream.cluster.commands import AlterPartition, IsrProposal
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.server import Broker

NO_TOPIC = UUID(int=0)


class AlterPartitionApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def apis(self) -> list[Api]:
        return [Api(56, "AlterPartition", 3, 3, self.alter_partition, between_brokers=True)]

    async def alter_partition(self, call: Call) -> Any:
        request = call.request
        if not self.broker.is_from_broker(call):
            return call.answer(error_code=ErrorCode.cluster_authorization_failed, topics=())
        proposals = [
            IsrProposal(
                topic.topic_id or NO_TOPIC,
                partition.partition_index,
                partition.leader_epoch,
                partition.partition_epoch,
                [(member.broker_id, member.broker_epoch) for member in partition.new_isr_with_epochs],
                bool(partition.leader_recovery_state),
            )
            for topic in request.topics
            for partition in topic.partitions
        ]
        command = AlterPartition(request.broker_id, request.broker_epoch, proposals)
        try:
            results = await self.broker.controller.submit(command)
        except KafkaError as error:
            return call.answer(error_code=error.code, topics=())
        return call.answer(
            error_code=ErrorCode.none,
            topics=tuple(
                call.make(
                    "TopicData",
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        self._partition(
                            call,
                            topic.topic_id or NO_TOPIC,
                            partition.partition_index,
                            results[topic.topic_id or NO_TOPIC, partition.partition_index].error,
                        )
                        for partition in topic.partitions
                    ),
                )
                for topic in request.topics
            ),
        )

    def _partition(self, call: Call, topic_id: UUID, index: int, error: ErrorCode) -> Any:
        record = self.broker.image.partition(topic_id, index)
        return call.make(
            "PartitionData",
            partition_index=index,
            error_code=error,
            leader_id=record.leader if record is not None else -1,
            leader_epoch=record.leader_epoch if record is not None else -1,
            isr=record.isr if record is not None else (),
            leader_recovery_state=int(record.recovering) if record is not None else 0,
            partition_epoch=record.partition_epoch if record is not None else -1,
        )
