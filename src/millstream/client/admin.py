"""What administrators do: topics, partitions, settings, records, log folders, the cluster itself.

Each call answers per topic (or resource): a result or a KafkaError with the broker's own words, so that one
bad name does not hide the rest. What fails as a whole is raised.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from millstream.client.cluster import MOVED, Cluster, Node
from millstream.client.errors import check, describe
from millstream.client.messages import NO_ID
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
CLIENT_METRICS = 16
GROUP = 32

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

SOURCES = {
    0: "UNKNOWN",
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}


@dataclass(frozen=True, slots=True)
class NewTopic:
    """-1 leaves a number to the broker's default. `assignments` (partition -> brokers) replaces both
    numbers."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)


class CreatedTopic(NamedTuple):
    name: str
    id: UUID
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class PartitionState:
    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] | None
    last_known_elr: tuple[int, ...] | None
    offline: tuple[int, ...]


class TopicState(NamedTuple):
    name: str
    id: UUID
    internal: bool
    partitions: list[PartitionState]


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool
    synonyms: list[Synonym]
    documentation: str | None

    @property
    def is_default(self) -> bool:
        return self.source == 5


class LogFolder(NamedTuple):
    broker: int
    path: str
    error: ErrorCode
    total_bytes: int
    usable_bytes: int
    # Size, lag, whether it is a copy under way to another folder.
    sizes: dict[TopicPartition, tuple[int, int, bool]]


class Reassignment(NamedTuple):
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Admin:
    """The administrative calls of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._timeout_ms = round(cluster.config.request_timeout * 1000)

    # --- topics ---------------------------------------------------------------------------------------------

    def topic_names(self) -> list[str]:
        """All topics that this client may see, internal ones too, sorted."""
        self.cluster.refresh()
        return sorted(self.cluster.topics)

    def create_topics(
        self, topics: Iterable[NewTopic], validate_only: bool = False
    ) -> dict[str, CreatedTopic | KafkaError]:
        wanted = [
            {
                "name": topic.name,
                "num_partitions": -1 if topic.assignments else topic.partitions,
                "replication_factor": -1 if topic.assignments else topic.replication_factor,
                "assignments": [
                    {"partition_index": index, "broker_ids": brokers}
                    for index, brokers in topic.assignments.items()
                ],
                "configs": [{"name": name, "value": value} for name, value in topic.configs.items()],
            }
            for topic in topics
        ]
        answer = self._change("create_topics", topics=wanted, validate_only=validate_only)
        return {
            str(topic.name): self._error(topic)
            or CreatedTopic(
                str(topic.name),
                getattr(topic, "topic_id", None) or NO_ID,
                int(getattr(topic, "num_partitions", -1)),
                int(getattr(topic, "replication_factor", -1)),
            )
            for topic in answer.topics
        }

    def create_if_missing(self, topic: NewTopic) -> None:
        """Somebody else may create it at the same time. KafkaError if it can be neither found nor made."""
        outcome = self.create_topics([topic])[topic.name]
        if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.topic_already_exists:
            raise outcome

    def delete_topics(self, names: Iterable[str]) -> dict[str, KafkaError | None]:
        names = list(names)
        topics = [{"name": name, "topic_id": NO_ID} for name in names]
        answer = self._change("delete_topics", topics=topics, topic_names=names)
        return {str(topic.name): self._error(topic) for topic in answer.responses}

    def create_partitions(
        self, counts: Mapping[str, int], assignments: Mapping[str, Sequence[Sequence[int]]] | None = None
    ) -> dict[str, KafkaError | None]:
        """Raise the number of partitions to these counts; `assignments` names the brokers of each new
        partition."""
        given = assignments or {}
        wanted = [
            {
                "name": name,
                "count": count,
                "assignments": [{"broker_ids": brokers} for brokers in given[name]]
                if name in given
                else None,
            }
            for name, count in counts.items()
        ]
        answer = self._change("create_partitions", topics=wanted, validate_only=False)
        return {str(topic.name): self._error(topic) for topic in answer.results}

    def describe_topics(
        self, names: Iterable[str], at_once: int = 2000
    ) -> dict[str, TopicState | KafkaError]:
        """Partitions with leader, replicas and ISR. Asks by DescribeTopicPartitions, in pages, where that is
        known."""
        left = sorted(set(names))
        try:
            self.cluster.any().version("describe_topic_partitions")
        except KafkaError as error:
            if error.code is not ErrorCode.unsupported_version:
                raise
            return self._describe_by_metadata(left)
        found: dict[str, TopicState | KafkaError] = {}
        cursor: dict[str, Any] | None = None
        while left:
            answer = self._request(
                None,
                "describe_topic_partitions",
                topics=[{"name": name} for name in left],
                response_partition_limit=at_once,
                cursor=cursor,
            )
            for topic in answer.topics:
                name = str(topic.name)
                if topic.error_code is not ErrorCode.none:
                    found[name] = KafkaError(
                        topic.error_code, describe(topic.error_code, subject=f"topic {name}")
                    )
                    continue
                earlier = found.get(name)
                partitions = earlier.partitions if isinstance(earlier, TopicState) else []
                partitions += [_partition_state(partition) for partition in topic.partitions]
                found[name] = TopicState(name, topic.topic_id or NO_ID, bool(topic.is_internal), partitions)
            if answer.next_cursor is None:
                break
            at = answer.next_cursor
            cursor = {"topic_name": at.topic_name, "partition_index": at.partition_index}
            left = [name for name in left if name >= at.topic_name]
        return found

    def reassignments(self) -> dict[TopicPartition, Reassignment]:
        """Partitions that are moving between brokers just now."""
        answer = self._change("list_partition_reassignments", topics=None)
        check(answer.error_code, answer.error_message)
        return {
            TopicPartition(str(topic.name), int(partition.partition_index)): Reassignment(
                tuple(map(int, partition.replicas)),
                tuple(map(int, partition.adding_replicas)),
                tuple(map(int, partition.removing_replicas)),
            )
            for topic in answer.topics
            for partition in topic.partitions
        }

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
        """Drop the records before an offset (-1: all there are). Answers with the new first offset."""
        left = dict(before)
        found: dict[TopicPartition, int | KafkaError] = {}
        for topic in {topic for topic, _ in before}:
            problem = self.cluster.refresh([topic]).get(topic)
            for topic_partition in [key for key in left if key[0] == topic]:
                if problem is None and topic_partition[1] not in self.cluster.topics[topic].partitions:
                    text = f"topic {topic} has no partition {topic_partition[1]}"
                    found[topic_partition] = KafkaError(ErrorCode.unknown_topic_or_partition, text)
                    del left[topic_partition]
                elif problem is not None:
                    found[topic_partition] = problem
                    del left[topic_partition]
        retry = self.cluster.retry()
        while left:
            moved: KafkaError | None = None
            for node_id, topic_partitions in self.cluster.by_leader(left).items():
                try:
                    answers = self._delete_records(node_id, {key: left[key] for key in topic_partitions})
                except KafkaError as error:
                    moved = error
                    continue
                for topic_partition, outcome in answers.items():
                    if isinstance(outcome, KafkaError) and outcome.code.retriable:
                        moved = outcome
                        continue
                    found[topic_partition] = outcome
                    left.pop(topic_partition, None)
            if left:
                retry.pause(
                    moved or KafkaError(ErrorCode.unknown_server_error, "the broker left out a partition")
                )
                if moved is not None and moved.code in MOVED:
                    self.cluster.refresh({topic for topic, _ in left})
        return found

    # --- settings -------------------------------------------------------------------------------------------

    def describe_configs(
        self, resources: Iterable[tuple[int, str]], *, synonyms: bool = False, documentation: bool = False
    ) -> dict[tuple[int, str], list[ConfigEntry] | KafkaError]:
        """The settings of topics, brokers and so on. A broker is asked about itself; all else, any broker."""
        found: dict[tuple[int, str], list[ConfigEntry] | KafkaError] = {}
        for node_id, group in self._by_broker(resources).items():
            wanted = [
                {"resource_type": resource_type, "resource_name": name, "configuration_keys": None}
                for resource_type, name in group
            ]
            answer = self._request(
                node_id,
                "describe_configs",
                resources=wanted,
                include_synonyms=synonyms,
                include_documentation=documentation,
            )
            for result in answer.results:
                key = (int(result.resource_type), str(result.resource_name))
                found[key] = self._error(result) or [_config_entry(entry) for entry in result.configs]
        return found

    def alter_configs(
        self,
        changes: Mapping[tuple[int, str], Sequence[tuple[str, int, str | None]]],
        validate_only: bool = False,
    ) -> dict[tuple[int, str], KafkaError | None]:
        """Incremental changes: (name, SET | DELETE | APPEND | SUBTRACT, value) per resource."""
        found: dict[tuple[int, str], KafkaError | None] = {}
        for node_id, group in self._by_broker(changes).items():
            wanted = [
                {
                    "resource_type": resource_type,
                    "resource_name": name,
                    "configs": [
                        {"name": key, "config_operation": how, "value": value}
                        for key, how, value in changes[resource_type, name]
                    ],
                }
                for resource_type, name in group
            ]
            answer = self._request(
                node_id, "incremental_alter_configs", resources=wanted, validate_only=validate_only
            )
            for result in answer.responses:
                found[int(result.resource_type), str(result.resource_name)] = self._error(result)
        return found

    def config_resources(self, resource_type: int) -> list[str]:
        """Names of the resources of a kind that have settings of their own."""
        answer = self._request(None, "list_config_resources", resource_types=[resource_type])
        check(answer.error_code)
        return sorted(
            str(found.resource_name)
            for found in answer.config_resources
            if int(found.resource_type) == resource_type
        )

    # --- the cluster ----------------------------------------------------------------------------------------

    def brokers(self) -> list[Node]:
        """Brokers that are up, by id."""
        self.cluster.refresh([])
        return [self.cluster.nodes[node_id] for node_id in sorted(self.cluster.nodes)]

    def describe_cluster(self) -> tuple[str | None, int, list[Node]]:
        """Cluster id, controller, brokers."""
        nodes = self.brokers()
        return self.cluster.cluster_id, self.cluster.controller_id, nodes

    def describe_log_dirs(self, brokers: Iterable[int] | None = None) -> list[LogFolder]:
        """The data folders of brokers and what each partition takes in them."""
        ids = [node.id for node in self.brokers()] if brokers is None else list(brokers)
        found = []
        for broker in ids:
            answer = self._request(broker, "describe_log_dirs", topics=None)
            check(getattr(answer, "error_code", ErrorCode.none), subject=f"broker {broker}")
            for result in answer.results:
                sizes = {
                    TopicPartition(str(topic.name), int(partition.partition_index)): (
                        int(partition.partition_size),
                        int(partition.offset_lag),
                        bool(partition.is_future_key),
                    )
                    for topic in result.topics
                    for partition in topic.partitions
                }
                total = int(getattr(result, "total_bytes", -1))
                usable = int(getattr(result, "usable_bytes", -1))
                found.append(LogFolder(broker, result.log_dir, result.error_code, total, usable, sizes))
        return found

    # --- inside ---------------------------------------------------------------------------------------------

    def _change(self, api: str, **fields: Any) -> Any:
        """A request that only the controller can answer. Its timeout in the request is the client's own."""

        def act() -> Any:
            answer = self.cluster.controller().request(api, timeout=self._timeout_ms, **fields)
            for result in getattr(answer, "topics", None) or getattr(answer, "responses", None) or ():
                if getattr(result, "error_code", None) is ErrorCode.not_controller:
                    raise KafkaError(ErrorCode.not_controller, "the broker is no longer the controller")
            return answer

        return self.cluster.persistently(act)

    def _request(self, node_id: int | None, api: str, **fields: Any) -> Any:
        def act() -> Any:
            if node_id is None:
                return self.cluster.any().request(api, **fields)
            if node_id not in self.cluster.nodes:
                self.cluster.refresh([])
            return self.cluster.connection(node_id).request(api, **fields)

        return self.cluster.persistently(act)

    def _by_broker(self, resources: Iterable[tuple[int, str]]) -> dict[int | None, list[tuple[int, str]]]:
        groups: dict[int | None, list[tuple[int, str]]] = {}
        for resource_type, name in resources:
            own = resource_type in (BROKER, BROKER_LOGGER) and name != ""
            groups.setdefault(int(name) if own else None, []).append((resource_type, name))
        return groups

    def _error(self, result: Any) -> KafkaError | None:
        if result.error_code is ErrorCode.none:
            return None
        name = getattr(result, "name", None) or getattr(result, "resource_name", "")
        message = describe(result.error_code, getattr(result, "error_message", None), str(name))
        return KafkaError(result.error_code, message)

    def _describe_by_metadata(self, names: list[str]) -> dict[str, TopicState | KafkaError]:
        found: dict[str, TopicState | KafkaError] = dict(self.cluster.refresh(names))
        for name in names:
            topic = self.cluster.topics.get(name)
            if topic is not None:
                partitions = [
                    PartitionState(
                        partition.index,
                        partition.leader,
                        partition.leader_epoch,
                        partition.replicas,
                        partition.isr,
                        None,
                        None,
                        partition.offline,
                    )
                    for partition in topic.partitions.values()
                ]
                found[name] = TopicState(name, topic.id, topic.internal, partitions)
        return found

    def _delete_records(
        self, node_id: int, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | KafkaError]:
        topics: dict[str, list[dict[str, int]]] = {}
        for (topic, partition), offset in before.items():
            topics.setdefault(topic, []).append({"partition_index": partition, "offset": offset})
        answer = self.cluster.connection(node_id).request(
            "delete_records",
            topics=[{"name": name, "partitions": partitions} for name, partitions in topics.items()],
            timeout=self._timeout_ms,
        )
        found: dict[TopicPartition, int | KafkaError] = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                topic_partition = TopicPartition(str(topic.name), int(partition.partition_index))
                if partition.error_code is ErrorCode.none:
                    found[topic_partition] = int(partition.low_watermark)
                else:
                    found[topic_partition] = KafkaError(partition.error_code, describe(partition.error_code))
        return found


def _partition_state(partition: Any) -> PartitionState:
    def ids(values: Any) -> tuple[int, ...]:
        return tuple(map(int, values))

    return PartitionState(
        int(partition.partition_index),
        int(partition.leader_id),
        int(partition.leader_epoch),
        ids(partition.replica_nodes),
        ids(partition.isr_nodes),
        None if partition.eligible_leader_replicas is None else ids(partition.eligible_leader_replicas),
        None if partition.last_known_elr is None else ids(partition.last_known_elr),
        ids(partition.offline_replicas),
    )


def _config_entry(entry: Any) -> ConfigEntry:
    return ConfigEntry(
        str(entry.name),
        entry.value,
        int(entry.config_source),
        bool(entry.read_only),
        bool(entry.is_sensitive),
        [Synonym(str(synonym.name), synonym.value, int(synonym.source)) for synonym in entry.synonyms],
        getattr(entry, "documentation", None),
    )
