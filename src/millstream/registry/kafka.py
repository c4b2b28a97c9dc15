"""Small calls of the Kafka protocol that the registry needs beside reading and writing."""

from millstream.client import Cluster, Connection
from millstream.client.cluster import Node
from millstream.client.errors import check
from millstream.wire.errors import ErrorCode


def coordinator(cluster: Cluster, key: str, *, transaction: bool = False) -> Connection:
    """A connection to the broker that coordinates a group, or a transactional id."""
    answer = cluster.any().request(
        "find_coordinator", key=key, key_type=1 if transaction else 0, coordinator_keys=[key]
    )
    found = answer.coordinators[0] if hasattr(answer, "coordinators") else answer
    check(
        getattr(found, "error_code", ErrorCode.none),
        getattr(found, "error_message", None),
        subject=f"the coordinator of {key}",
    )
    node_id = int(found.node_id)
    if node_id not in cluster.nodes:
        cluster.refresh([])
        cluster.nodes.setdefault(node_id, Node(node_id, str(found.host), int(found.port)))
    return cluster.connection(node_id)
