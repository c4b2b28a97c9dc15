"""FindCoordinator 0-6: which broker coordinates a group or a transactional id.

    1  the key's type (KIP-98), an error message       4  several keys at once (KIP-699)
    2  throttling is up to the client (KIP-219)        5  TRANSACTION_ABORTABLE (KIP-890)
    3  flexible (KIP-482)                              6  share groups (KIP-932)

A coordinator lives with the leader of the partition that its key falls into (`coordinators.runtime`), so the
answer comes from the metadata image. The internal topic is created with the first request for a key of its
type. Left out: share groups (key type 2), refused as INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.broker.authorizer import DESCRIBE, TRANSACTIONAL_ID, may
from millstream.broker.authorizer import GROUP as GROUP_RESOURCE
from millstream.broker.network.dispatch import Api, Call
from millstream.broker.network.slices import Slices, collect, distinct
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.coordinators.runtime import CoordinatorRuntime
    from millstream.broker.server import Broker

GROUP, TRANSACTION = 0, 1
FIRST_BATCHED = 4  # several keys in one request


class FindCoordinatorApi:
    """Knows the coordinator runtime of each key type; the broker adds them when it starts."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.runtimes: dict[int, CoordinatorRuntime[Any]] = {}

    def add(self, key_type: int, runtime: CoordinatorRuntime[Any]) -> None:
        """From now on the runtime hears when this broker leads a partition of its topic, or resigns."""
        self.runtimes[key_type] = runtime
        self.broker.partitions.coordinated[runtime.topic] = runtime

    def apis(self) -> list[Api]:
        return [Api(10, "FindCoordinator", 0, 6, self.find_coordinator)]

    def find_coordinator(self, call: Call) -> Any:
        """Answers at once unless the internal topic has to be created first; who may see no key creates
        nothing."""
        runtime = self.runtimes.get(call.request.key_type if call.version >= 1 else GROUP)
        if runtime is not None and self.broker.authorizer is not None:
            keys = call.request.coordinator_keys if call.version >= FIRST_BATCHED else (call.request.key,)
            if not any(self._allowed(call, runtime, key) for key in keys):
                return self._answer(call, runtime, None)
        if runtime is not None and not runtime.exists:
            return self._create_and_answer(call, runtime)
        return self._answer(call, runtime, None)

    async def _create_and_answer(self, call: Call, runtime: CoordinatorRuntime[Any]) -> Any:
        problem = None
        try:
            await runtime.ensure_exists()
        except KafkaError as error:
            problem = KafkaError(ErrorCode.coordinator_not_available, error.message)
        return await call.in_slices(self._answer(call, runtime, problem))

    def _answer(
        self, call: Call, runtime: CoordinatorRuntime[Any] | None, problem: KafkaError | None
    ) -> Slices[Any]:
        """A key that is named twice is answered once."""
        if runtime is None:
            problem = KafkaError(ErrorCode.invalid_request, "This coordinator type is not served here.")
        request = call.request
        if call.version >= FIRST_BATCHED:
            keys = yield from distinct(request.coordinator_keys)
            coordinators = yield from collect(
                call.make("Coordinator", key=key, **self._coordinator(call, runtime, key, problem))
                for key in keys
            )
            return call.answer(coordinators=coordinators)
        return call.answer(**self._coordinator(call, runtime, request.key, problem))

    def _coordinator(
        self, call: Call, runtime: CoordinatorRuntime[Any] | None, key: str, problem: KafkaError | None
    ) -> dict[str, Any]:
        if runtime is not None and not self._allowed(call, runtime, key):
            is_group = runtime is self.runtimes.get(GROUP)
            problem = KafkaError(
                ErrorCode.group_authorization_failed
                if is_group
                else ErrorCode.transactional_id_authorization_failed
            )
        if runtime is not None and problem is None:
            node = self.broker.image.brokers.get(self._leader(runtime, key))
            endpoint = None if node is None else node.endpoint(call.listener)
            if node is not None and endpoint is not None:
                return {
                    "node_id": node.broker_id,
                    "host": endpoint.host,
                    "port": endpoint.port,
                    "error_code": ErrorCode.none,
                    # As Kafka words it.
                    "error_message": "" if call.version >= FIRST_BATCHED else "NONE",
                }
        return {
            "node_id": -1,
            "host": "",
            "port": -1,
            "error_code": ErrorCode.coordinator_not_available if problem is None else problem.code,
            "error_message": "" if problem is None else problem.message,
        }

    def _allowed(self, call: Call, runtime: CoordinatorRuntime[Any], key: str) -> bool:
        kind = GROUP_RESOURCE if runtime is self.runtimes.get(GROUP) else TRANSACTIONAL_ID
        return may(self.broker.authorizer, call, DESCRIBE, kind, key)

    def _leader(self, runtime: CoordinatorRuntime[Any], key: str) -> int:
        image = self.broker.image
        known = image.topic(runtime.topic)
        if known is None:
            return -1
        partition = image.partition(known.topic_id, runtime.partition_for(key))
        return -1 if partition is None else partition.leader
