"""What administrators do with replicas and with the cluster itself: elections, moves between brokers and
between data folders, features, the metadata quorum, registrations.

A class of its own beside `Admin`, whose calls it has too: few programs need both.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from millstream.client.admin import Admin
from millstream.client.errors import check, describe
from millstream.client.messages import API_KEYS, NO_ID, known_versions
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

PREFERRED, UNCLEAN = 0, 1
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
BROKER_ENDPOINTS = 1
METADATA_TOPIC = "__cluster_metadata"
FIRST_WITH_UNCLEAN = 1
FIRST_WITH_FENCED_BROKERS = 2


class Replica(NamedTuple):
    """One copy of a partition: on which broker."""

    topic: str
    partition: int
    broker: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.broker}"


class ReplicaFolders(NamedTuple):
    """Where a replica is, and where it is moving to; None if it is nowhere, or does not move."""

    current: str | None
    future: str | None
    lag: int  # offsets by which the copy under way is behind


class SupportedFeature(NamedTuple):
    lowest: int
    highest: int
    finalized: int  # 0: not finalized


class Features(NamedTuple):
    features: dict[str, SupportedFeature]
    epoch: int  # of the finalized levels; -1 if the broker has none


class QuorumReplica(NamedTuple):
    id: int
    directory_id: UUID
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class Quorum(NamedTuple):
    leader: int
    leader_epoch: int
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]
    endpoints: dict[int, list[str]]  # "CONTROLLER://host:port" of each node that named some


class Endpoint(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None
    fenced: bool | None  # None where the broker does not tell


class ClusterAdmin(Admin):
    # --- replicas and leaders -------------------------------------------------------------------------------

    def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None, unclean: bool = False
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elects a leader for each partition (None: for all that need one)."""
        topics = None if partitions is None else _by_topic(partitions)
        if unclean:
            self.cluster.any().version("elect_leaders", at_least=FIRST_WITH_UNCLEAN)
        answer = self._change(
            "elect_leaders",
            election_type=UNCLEAN if unclean else PREFERRED,
            topic_partitions=None
            if topics is None
            else [{"topic": name, "partitions": indexes} for name, indexes in topics.items()],
        )
        check(getattr(answer, "error_code", ErrorCode.none))
        return {
            TopicPartition(str(topic.topic), int(partition.partition_id)): self._error(partition)
            for topic in answer.replica_election_results
            for partition in topic.partition_result
        }

    def alter_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Begins to move replicas to these brokers; None cancels what is under way."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, index), replicas in targets.items():
            topics.setdefault(topic, []).append({"partition_index": index, "replicas": replicas})
        if not allow_replication_factor_change:
            self.cluster.any().version("alter_partition_reassignments", at_least=1)
        answer = self._change(
            "alter_partition_reassignments",
            topics=[{"name": name, "partitions": partitions} for name, partitions in topics.items()],
            allow_replication_factor_change=allow_replication_factor_change,
        )
        check(answer.error_code, answer.error_message)
        return {
            TopicPartition(str(topic.name), int(partition.partition_index)): self._error(partition)
            for topic in answer.responses
            for partition in topic.partitions
        }

    def alter_replica_log_dirs(self, moves: Mapping[Replica, str]) -> dict[Replica, KafkaError | None]:
        """Begins to move replicas to other data folders of their brokers."""
        found: dict[Replica, KafkaError | None] = {}
        for broker in sorted({replica.broker for replica in moves}):
            folders: dict[str, list[TopicPartition]] = {}
            for replica, folder in moves.items():
                if replica.broker == broker:
                    folders.setdefault(folder, []).append(TopicPartition(replica.topic, replica.partition))
            answer = self._request(
                broker,
                "alter_replica_log_dirs",
                dirs=[
                    {
                        "path": folder,
                        "topics": [
                            {"name": name, "partitions": indexes}
                            for name, indexes in _by_topic(partitions).items()
                        ],
                    }
                    for folder, partitions in folders.items()
                ],
            )
            for topic in answer.results:
                for partition in topic.partitions:
                    replica = Replica(str(topic.topic_name), int(partition.partition_index), broker)
                    code = partition.error_code
                    found[replica] = (
                        None if code is ErrorCode.none else KafkaError(code, _FOLDER_PROBLEMS.get(code, ""))
                    )
        return found

    def replica_folders(self, replicas: Iterable[Replica]) -> dict[Replica, ReplicaFolders]:
        """Where each of these replicas is, and where it moves to. Brokers that are down are left out."""
        wanted = set(replicas)
        live = {node.id for node in self.brokers()}
        found = {replica: ReplicaFolders(None, None, -1) for replica in wanted if replica.broker in live}
        for folder in self.describe_log_dirs(sorted({replica.broker for replica in found})):
            for (topic, index), (_, lag, is_future) in folder.sizes.items():
                replica = Replica(topic, index, folder.broker)
                if replica not in found:
                    continue
                known = found[replica]
                found[replica] = (
                    ReplicaFolders(known.current, folder.path, lag)
                    if is_future
                    else known._replace(current=folder.path)
                )
        return found

    # --- the cluster ----------------------------------------------------------------------------------------

    def endpoints(self, include_fenced: bool = False) -> list[Endpoint]:
        """Every broker with its address, by id; those that are down too, with `include_fenced`."""
        if include_fenced:
            self.cluster.any().version("describe_cluster", at_least=FIRST_WITH_FENCED_BROKERS)
        answer = self._request(
            None,
            "describe_cluster",
            include_cluster_authorized_operations=False,
            endpoint_type=BROKER_ENDPOINTS,
            include_fenced_brokers=include_fenced,
        )
        check(answer.error_code, answer.error_message)
        return sorted(
            Endpoint(
                int(broker.broker_id),
                str(broker.host),
                int(broker.port),
                broker.rack,
                getattr(broker, "is_fenced", None),
            )
            for broker in answer.brokers
        )

    def unregister_broker(self, broker: int) -> None:
        answer = self._request(None, "unregister_broker", broker_id=broker)
        check(answer.error_code, answer.error_message)

    def features(self, node_id: int | None = None) -> Features:
        """What brokers can do (at which levels), and which level the cluster uses."""
        if node_id is not None and node_id not in self.cluster.nodes:
            self.cluster.refresh([])
        connection = self.cluster.any() if node_id is None else self.cluster.connection(node_id)
        answer = connection.request(
            "api_versions", client_software_name="millstream", client_software_version="tools"
        )
        check(answer.error_code)
        finalized = {
            str(feature.name): int(feature.max_version_level)
            for feature in getattr(answer, "finalized_features", ())
        }
        return Features(
            {
                str(feature.name): SupportedFeature(
                    int(feature.min_version), int(feature.max_version), finalized.get(str(feature.name), 0)
                )
                for feature in getattr(answer, "supported_features", ())
            },
            int(getattr(answer, "finalized_features_epoch", -1)),
        )

    def update_features(
        self, levels: Mapping[str, int], upgrade_type: int = UPGRADE, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Sets the levels of features, all or none; level 0 removes one."""
        answer = self._change(
            "update_features",
            feature_updates=[
                {
                    "feature": name,
                    "max_version_level": level,
                    "upgrade_type": upgrade_type,
                    "allow_downgrade": upgrade_type != UPGRADE,
                }
                for name, level in levels.items()
            ],
            validate_only=validate_only,
        )
        whole = self._error(answer)
        found: dict[str, KafkaError | None] = dict.fromkeys(levels, whole)
        for result in getattr(answer, "results", ()):
            found[str(result.feature)] = whole or self._error(result)
        return found

    def quorum(self) -> Quorum:
        """Who leads the metadata, and how far its other voters are."""
        answer = self._request(
            None,
            "describe_quorum",
            topics=[{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}],
        )
        check(answer.error_code, getattr(answer, "error_message", None))
        partition = answer.topics[0].partitions[0]
        check(partition.error_code, getattr(partition, "error_message", None))
        return Quorum(
            int(partition.leader_id),
            int(partition.leader_epoch),
            int(partition.high_watermark),
            [_quorum_replica(state) for state in partition.current_voters],
            [_quorum_replica(state) for state in partition.observers],
            {
                int(node.node_id): [
                    f"{listener.name}://{listener.host}:{int(listener.port)}" for listener in node.listeners
                ]
                for node in getattr(answer, "nodes", ())
            },
        )

    def api_versions(self, node_id: int) -> dict[int, tuple[int, int]]:
        """The APIs that one broker offers, by key, with the lowest and the highest version of each."""
        return dict(self.cluster.connection(node_id).versions)


def usable_version(key: int, offered: tuple[int, int]) -> int | None:
    """The highest version that this client speaks too; None if there is none."""
    name = next((name for name, number in API_KEYS.items() if number == key), None)
    if name is None:
        return None
    lowest, highest = known_versions(name)
    best = min(highest, offered[1])
    return best if best >= max(lowest, offered[0]) else None


def describe_problem(error: KafkaError) -> str:
    """The broker's words, or the name of its code."""
    return error.message or describe(error.code)


# AlterReplicaLogDirs answers with codes alone.
_FOLDER_PROBLEMS = {
    ErrorCode.log_dir_not_found: "The user-specified log directory is not found in the broker config.",
    ErrorCode.replica_not_available: "The broker has no such replica yet.",
    ErrorCode.unknown_topic_or_partition: "The broker has no such replica.",
    ErrorCode.kafka_storage_error: "The data folder is out of service.",
    ErrorCode.unsupported_version: "The broker does not move replicas between its data folders.",
}


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return topics


def _quorum_replica(state: Any) -> QuorumReplica:
    return QuorumReplica(
        int(state.replica_id),
        getattr(state, "replica_directory_id", None) or NO_ID,
        int(state.log_end_offset),
        _milliseconds(getattr(state, "last_fetch_timestamp", -1)),
        _milliseconds(getattr(state, "last_caught_up_timestamp", -1)),
    )


def _milliseconds(value: Any) -> int:
    return -1 if value is None else int(value)
