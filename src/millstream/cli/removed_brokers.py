"""After `up --brokers N` with fewer brokers than before: the cluster forgets the others.

They were moved away from before they could be left out, and none of them comes back by itself: without this
they would be shown as brokers that are down, and be given replicas of new topics.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from millstream.cli import cluster_access
from millstream.cli.secure_platform import ADMIN, FOLDER, admin_properties
from millstream.client.admin import Admin, TopicState
from millstream.client.cluster_admin import ClusterAdmin
from millstream.wire.errors import ErrorCode, KafkaError

CLIENT = "millstream-up"


def forget(servers: str, folder: Path, broker_ids: Sequence[int]) -> dict[int, str]:
    """Unregister brokers that hold nothing. Returns why that was not possible, by id."""
    secured = (folder / FOLDER / f"{ADMIN}.properties").exists()
    try:
        with cluster_access.connect(servers, admin_properties(folder) if secured else {}, CLIENT) as cluster:
            admin = ClusterAdmin(cluster)
            replicas = _replicas(admin, broker_ids)
            return {each: why for each in broker_ids if (why := _forget(admin, each, replicas[each]))}
    except KafkaError as error:
        return dict.fromkeys(broker_ids, str(error))


def _forget(admin: ClusterAdmin, broker_id: int, replicas: int) -> str:
    if replicas:  # of a topic that was made since the broker was left out
        return f"{replicas} partitions have a replica on it (move them: millstream reassign-partitions)"
    try:
        admin.unregister_broker(broker_id)
    except KafkaError as error:
        if error.code is not ErrorCode.broker_id_not_registered:
            return str(error)
    return ""


def _replicas(admin: Admin, broker_ids: Iterable[int]) -> dict[int, int]:
    found = dict.fromkeys(broker_ids, 0)
    for topic in admin.describe_topics(admin.topic_names()).values():
        for partition in topic.partitions if isinstance(topic, TopicState) else ():
            for broker_id in found.keys() & set(partition.replicas):
                found[broker_id] += 1
    return found
