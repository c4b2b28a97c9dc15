"""The cluster as a whole: DescribeQuorum, UpdateFeatures, UnregisterBroker, AllocateProducerIds.

DescribeQuorum 0-2 (KIP-595)
     1  when each replica last fetched and was last caught up (KIP-836)
     2  error messages, directory ids, the endpoints of the voters (KIP-853)
UpdateFeatures 0-2 (KIP-584)
     1  upgrade type instead of a flag, validate only (KIP-778)
     2  one error for the whole request instead of one per feature (KIP-1022)
UnregisterBroker 0 (KIP-500): forgets a broker; one that is alive stays away until it is started again
AllocateProducerIds 0 (KIP-730): from brokers to the controller

The log behind `MetadataStore` goes by Kafka's name for it, `__cluster_metadata`, and its entries count as
offsets. Every registered broker may lead it, so that all of them are its voters; there are no observers.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from millstream.broker.authorizer import ALTER, CLUSTER, DESCRIBE, may
from millstream.broker.network.dispatch import Api, Call
from millstream.broker.network.slices import Slices, collect
from millstream.cluster.commands import (
    AllocateProducerIds,
    FeatureUpdate,
    ProducerIdBlock,
    UnregisterBroker,
    UpdateFeatures,
    UpgradeType,
)
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.server import Broker

METADATA_TOPIC = "__cluster_metadata"
FIRST_WITH_UPGRADE_TYPE = 1


class ClusterApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def apis(self) -> list[Api]:
        return [
            Api(55, "DescribeQuorum", 0, 2, self.describe_quorum, forwarded=True),
            Api(57, "UpdateFeatures", 0, 2, self.update_features, forwarded=True),
            Api(64, "UnregisterBroker", 0, 0, self.unregister_broker, forwarded=True),
            Api(67, "AllocateProducerIds", 0, 0, self.allocate_producer_ids, between_brokers=True),
        ]

    # ------------------------------------------------------------------ DescribeQuorum

    def describe_quorum(self, call: Call) -> Slices[Any]:
        topics = call.request.topics
        if not may(self.broker.authorizer, call, DESCRIBE, CLUSTER):
            return call.answer(
                error_code=ErrorCode.cluster_authorization_failed, error_message=None, topics=(), nodes=()
            )
        known = (
            len(topics) == 1
            and topics[0].topic_name == METADATA_TOPIC
            and [partition.partition_index for partition in topics[0].partitions[:2]] == [0]
        )
        image = self.broker.image
        described = []
        for topic in topics:
            partitions = yield from collect(
                self._partition(call, partition.partition_index, known) for partition in topic.partitions
            )
            described.append(call.make("TopicData", topic_name=topic.topic_name, partitions=partitions))
            yield
        return call.answer(
            error_code=ErrorCode.none,
            error_message=None,
            topics=tuple(described),
            nodes=tuple(
                call.make(
                    "Node",
                    node_id=node.broker_id,
                    listeners=tuple(
                        call.make("Listener", name=endpoint.listener, host=endpoint.host, port=endpoint.port)
                        for endpoint in node.endpoints
                    ),
                )
                for node in image.brokers.values()
            )
            if known and call.codec.has("Node")
            else (),
        )

    def _partition(self, call: Call, index: int, known: bool) -> Any:
        image = self.broker.image
        now_ms = time.time_ns() // 1_000_000
        error = ErrorCode.none if known else ErrorCode.unknown_topic_or_partition
        return call.make(
            "PartitionData",
            partition_index=index,
            error_code=error,
            error_message=None,
            leader_id=image.controller_id if known else -1,
            leader_epoch=image.controller_epoch if known else -1,
            high_watermark=image.version if known else -1,
            current_voters=tuple(
                call.make(
                    "ReplicaState",
                    replica_id=broker_id,
                    replica_directory_id=None,
                    log_end_offset=image.version,
                    last_fetch_timestamp=now_ms,
                    last_caught_up_timestamp=now_ms,
                )
                for broker_id in image.brokers
            )
            if known
            else (),
            observers=(),
        )

    # ------------------------------------------------------------------ UpdateFeatures

    async def update_features(self, call: Call) -> Any:
        """All or none, in every version; up to version 1 the response still lists each feature."""
        request = call.request
        error, message = ErrorCode.none, None
        if not may(self.broker.authorizer, call, ALTER, CLUSTER):
            return call.answer(
                error_code=ErrorCode.cluster_authorization_failed, error_message=None, results=()
            )
        updates = await call.in_slices(
            collect(
                FeatureUpdate(update.feature, update.max_version_level, _upgrade_type(call.version, update))
                for update in request.feature_updates
            )
        )
        validate_only = call.version >= FIRST_WITH_UPGRADE_TYPE and request.validate_only
        try:
            await self.broker.controller.submit(
                UpdateFeatures(updates, validate_only), is_large=call.is_large
            )
        except KafkaError as refused:
            error, message = refused.code, refused.message
        results = ()
        if error is ErrorCode.none and call.codec.has("UpdatableFeatureResult"):
            results = await call.in_slices(
                collect(
                    call.make(
                        "UpdatableFeatureResult",
                        feature=update.feature,
                        error_code=ErrorCode.none,
                        error_message=None,
                    )
                    for update in request.feature_updates
                )
            )
        return call.answer(error_code=error, error_message=message, results=results)

    # ------------------------------------------------------------------ UnregisterBroker

    async def unregister_broker(self, call: Call) -> Any:
        error, message = ErrorCode.none, None
        if not may(self.broker.authorizer, call, ALTER, CLUSTER):
            error = ErrorCode.cluster_authorization_failed
        else:
            try:
                await self.broker.controller.submit(UnregisterBroker(call.request.broker_id))
            except KafkaError as refused:
                error, message = refused.code, refused.message
        return call.answer(error_code=error, error_message=message)

    # ------------------------------------------------------------------ AllocateProducerIds

    async def allocate_producer_ids(self, call: Call) -> Any:
        request, error = call.request, ErrorCode.none
        block = ProducerIdBlock(-1, 0)
        if not self.broker.is_from_broker(call):
            error = ErrorCode.cluster_authorization_failed
        else:
            try:
                block = await self.broker.controller.submit(
                    AllocateProducerIds(request.broker_id, request.broker_epoch)
                )
            except KafkaError as refused:
                error = refused.code
        return call.answer(error_code=error, producer_id_start=block.first, producer_id_len=block.count)


def _upgrade_type(version: int, update: Any) -> int:
    if version >= FIRST_WITH_UPGRADE_TYPE:
        return int(update.upgrade_type)
    return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
