"""Who coordinates what: FindCoordinator 0 to 6.

A coordinator lives with the leader of the shard that its key falls into (see `shards`), so the answer comes from the
image. The internal topic is created when somebody first asks for a key of its kind. Several keys at once from version 4
on. Left out: share groups (key type 2), refused as INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.broker.network.dispatch import Api, Call
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.coordinators.runtime import CoordinatorRuntime
    from millstream.broker.server import Broker

GROUP, TRANSACTION = 0, 1
FIRST_BATCHED = 4  # several keys in one request


class FindCoordinatorApi:
    """Knows the internal topic of each kind of key; coordinators `add` theirs when the broker is put together."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.topics: dict[int, CoordinatorRuntime[Any]] = {}

    def add(self, kind: int, topic: CoordinatorRuntime[Any]) -> None:
        """From now on this topic's partitions tell the topic's coordinator when their role changes."""
        self.topics[kind] = topic
        self.broker.partitions.coordinated[topic.topic] = topic

    def apis(self) -> list[Api]:
        return [Api(10, "FindCoordinator", 0, 6, self.find_coordinator)]

    def find_coordinator(self, call: Call) -> Any:
        """Answers at once unless the internal topic has to be created first."""
        kind = call.request.key_type if call.version >= 1 else GROUP
        topic = self.topics.get(kind)
        if topic is not None and not topic.exists:
            return self._create_and_answer(call, topic)
        return self._answer(call, topic, None)

    async def _create_and_answer(self, call: Call, topic: CoordinatorRuntime[Any]) -> Any:
        problem = None
        try:
            await topic.ensure_exists()
        except KafkaError as error:
            problem = KafkaError(ErrorCode.coordinator_not_available, error.message)
        return self._answer(call, topic, problem)

    def _answer(self, call: Call, topic: CoordinatorRuntime[Any] | None, problem: KafkaError | None) -> Any:
        if topic is None:
            problem = KafkaError(ErrorCode.invalid_request, "This coordinator type is not served here.")
        request = call.request
        if call.version >= FIRST_BATCHED:
            return call.answer(
                coordinators=tuple(
                    call.make("Coordinator", key=key, **self._coordinator(call, topic, key, problem))
                    for key in request.coordinator_keys
                )
            )
        return call.answer(**self._coordinator(call, topic, request.key, problem))

    def _coordinator(
        self, call: Call, topic: CoordinatorRuntime[Any] | None, key: str, problem: KafkaError | None
    ) -> dict[str, Any]:
        if topic is not None and problem is None:
            node = self.broker.image.brokers.get(self._leader(topic, key))
            endpoint = None if node is None else node.endpoint(call.listener)
            if node is not None and endpoint is not None:
                return {
                    "node_id": node.broker_id,
                    "host": endpoint.host,
                    "port": endpoint.port,
                    "error_code": ErrorCode.none,
                    "error_message": "" if call.version >= FIRST_BATCHED else "NONE",  # Kafka's own words
                }
        return {
            "node_id": -1,
            "host": "",
            "port": -1,
            "error_code": ErrorCode.coordinator_not_available if problem is None else problem.code,
            "error_message": "" if problem is None else problem.message,
        }

    def _leader(self, topic: CoordinatorRuntime[Any], key: str) -> int:
        image = self.broker.image
        known = image.topic(topic.topic)
        if known is None:
            return -1
        partition = image.partition(known.topic_id, topic.partition_for(key))
        return -1 if partition is None else partition.leader
