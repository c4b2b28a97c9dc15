"""Who coordinates a group or a transactional id: FindCoordinator, remembered until an answer shows that it
has moved."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from millstream.client.cluster import Cluster, Node, Retry
from millstream.client.connection import Connection
from millstream.client.errors import describe
from millstream.wire.errors import ErrorCode, KafkaError

# Key types of FindCoordinator.
GROUP, TRANSACTION = 0, 1
KEYS_PER_REQUEST = 2000

MOVED_COORDINATOR = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.network_exception,
    }
)

Result = TypeVar("Result")


class Coordinators:
    """The coordinators of one type of key. `timeout` limits each call, in seconds; 0 means one try. `known`
    is what the caller has found out already."""

    def __init__(
        self,
        cluster: Cluster,
        key_type: int,
        timeout: float | None = None,
        known: Mapping[str, int] | None = None,
    ) -> None:
        self.cluster = cluster
        self._key_type = key_type
        self._timeout = timeout
        self._nodes: dict[str, int] = dict(known or {})

    def retry(self) -> Retry:
        return self.cluster.retry(self._timeout)

    def node(self, key: str) -> Node:
        """The broker that coordinates this key."""
        known = self._nodes.get(key)
        if known is None or known not in self.cluster.nodes:
            found = self._find([key])[key]
            if isinstance(found, KafkaError):
                raise found
            known = self._nodes[key] = found
            if known not in self.cluster.nodes:
                self.cluster.refresh([])
        node = self.cluster.nodes.get(known)
        if node is None:
            del self._nodes[key]
            raise KafkaError(ErrorCode.coordinator_not_available, f"broker {known} is not in the cluster")
        return node

    def by_node(self, keys: Iterable[str]) -> dict[int, list[str]]:
        """Many keys by the broker that coordinates them; a key without a coordinator at the moment is left
        out."""
        if not self.cluster.nodes:
            self.cluster.refresh([])
        grouped: dict[int, list[str]] = {}
        for key, found in self._find(list(keys)).items():
            if not isinstance(found, KafkaError):
                grouped.setdefault(found, []).append(key)
        if not grouped.keys() <= self.cluster.nodes.keys():
            self.cluster.refresh([])
        return {node_id: names for node_id, names in grouped.items() if node_id in self.cluster.nodes}

    def call(self, key: str, request: Callable[[Connection], Result]) -> Result:
        """`request` with a connection to the coordinator, again while it moves or loads."""
        retry = self.retry()
        while True:
            try:
                return request(self.cluster.connection(self.node(key).id))
            except KafkaError as error:
                if error.code in MOVED_COORDINATOR:
                    self._nodes.pop(key, None)
                retry.pause(error)

    def _find(self, keys: Sequence[str]) -> dict[str, int | KafkaError]:
        """FindCoordinator. Version 4 (KIP-699) takes many keys in one request."""
        connection = self.cluster.any()
        several = connection.version("find_coordinator") >= 4
        found: dict[str, int | KafkaError] = {}
        size = KEYS_PER_REQUEST if several else 1
        for start in range(0, len(keys), size):
            batch = keys[start : start + size]
            answer = connection.request(
                "find_coordinator", key=batch[0], key_type=self._key_type, coordinator_keys=list(batch)
            )
            for entry in answer.coordinators if several else (answer,):
                key = str(entry.key) if several else batch[0]
                code, message = entry.error_code, getattr(entry, "error_message", None)
                if code is ErrorCode.none:
                    found[key] = int(entry.node_id)
                else:
                    found[key] = KafkaError(code, describe(code, message, f"the coordinator of {key}"))
        return found
