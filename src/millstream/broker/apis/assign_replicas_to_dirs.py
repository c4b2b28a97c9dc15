"""AssignReplicasToDirs 0: a broker tells the controller where its replicas are (KIP-858). Between brokers.

Only one directory matters here: LOST, for replicas that their broker cannot write. Others
lead and commit without them from then on. Which of its folders a replica lies in is the broker's own affair,
and is not kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from millstream.broker.network.dispatch import Api, Call
from millstream.cluster.commands import LOST_DIRECTORY, ReplicasFailed
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.server import Broker

NO_TOPIC = UUID(int=0)


class AssignReplicasToDirsApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def apis(self) -> list[Api]:
        return [Api(73, "AssignReplicasToDirs", 0, 0, self.assign, between_brokers=True)]

    async def assign(self, call: Call) -> Any:
        request = call.request
        if not self.broker.is_from_broker(call):
            return _refused(call, ErrorCode.cluster_authorization_failed)
        lost = [
            (topic.topic_id or NO_TOPIC, partition.partition_index)
            for directory in request.directories
            if directory.id_ == LOST_DIRECTORY
            for topic in directory.topics
            for partition in topic.partitions
        ]
        try:
            results = await self.broker.controller.submit(
                ReplicasFailed(request.broker_id, request.broker_epoch, lost)
            )
        except KafkaError as error:
            return _refused(call, error.code)

        def partition_data(directory: UUID | None, topic_id: UUID | None, index: int) -> Any:
            key = (topic_id or NO_TOPIC, index)
            error = results[key].error if directory == LOST_DIRECTORY else ErrorCode.none
            return call.make("PartitionData", partition_index=index, error_code=error)

        return call.answer(
            error_code=ErrorCode.none,
            directories=tuple(
                call.make(
                    "DirectoryData",
                    id_=directory.id_,
                    topics=tuple(
                        call.make(
                            "TopicData",
                            topic_id=topic.topic_id,
                            partitions=tuple(
                                partition_data(directory.id_, topic.topic_id, partition.partition_index)
                                for partition in topic.partitions
                            ),
                        )
                        for topic in directory.topics
                    ),
                )
                for directory in request.directories
            ),
        )


def _refused(call: Call, code: ErrorCode) -> Any:
    return call.answer(error_code=code, directories=())
