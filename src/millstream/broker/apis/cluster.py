"""The cluster as a whole: DescribeQuorum 0 to 2, UpdateFeatures 0 to 2.

Who keeps the metadata: the log behind `MetadataStore` goes under Kafka's name for it, `__cluster_metadata`, its
entries count as its offsets. Every broker that has registered may lead it, so all of them are its voters.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from millstream.broker.network.dispatch import Api, Call
from millstream.cluster.commands import FeatureUpdate, UpdateFeatures, UpgradeType
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.server import Broker

METADATA_TOPIC = "__cluster_metadata"
FIRST_WITH_UPGRADE_TYPE = 1  # before, an update said only whether it may be a downgrade


class ClusterApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def apis(self) -> list[Api]:
        return [
            Api(55, "DescribeQuorum", 0, 2, self.describe_quorum),
            Api(57, "UpdateFeatures", 0, 2, self.update_features),
        ]

    # ------------------------------------------------------------------ DescribeQuorum

    def describe_quorum(self, call: Call) -> Any:
        topics = call.request.topics
        asked = [(topic.topic_name, [part.partition_index for part in topic.partitions]) for topic in topics]
        known = asked == [(METADATA_TOPIC, [0])]
        image = self.broker.image
        return call.answer(
            error_code=ErrorCode.none,
            error_message=None,
            topics=tuple(
                call.make(
                    "TopicData",
                    topic_name=name,
                    partitions=tuple(self._partition(call, index, known) for index in indexes),
                )
                for name, indexes in asked
            ),
            nodes=tuple(
                call.make(
                    "Node",
                    node_id=node.broker_id,
                    listeners=tuple(
                        call.make("Listener", name=end.listener, host=end.host, port=end.port)
                        for end in node.endpoints
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
        """All or none; up to version 1 the answer has a line for each feature all the same."""
        request = call.request
        error, message = ErrorCode.none, None
        try:
            await self.broker.controller.submit(
                UpdateFeatures(
                    [
                        FeatureUpdate(one.feature, one.max_version_level, _upgrade_type(call.version, one))
                        for one in request.feature_updates
                    ],
                    validate_only=call.version >= FIRST_WITH_UPGRADE_TYPE and request.validate_only,
                )
            )
        except KafkaError as refused:
            error, message = refused.code, refused.message
        results = ()
        if error is ErrorCode.none and call.codec.has("UpdatableFeatureResult"):
            results = tuple(
                call.make(
                    "UpdatableFeatureResult",
                    feature=one.feature,
                    error_code=ErrorCode.none,
                    error_message=None,
                )
                for one in request.feature_updates
            )
        return call.answer(error_code=error, error_message=message, results=results)


def _upgrade_type(version: int, update: Any) -> int:
    if version >= FIRST_WITH_UPGRADE_TYPE:
        return int(update.upgrade_type)
    return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
