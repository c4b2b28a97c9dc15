"""The topics of both clusters: which are mirrored, and what the target's have to be like.

Topics and partitions that the target lacks are created. Settings and ACLs follow those of the source: ACLs as
far as they let somebody read, since nobody but the mirror writes to a mirrored topic.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from millstream.client import Admin, Cluster, NewTopic
from millstream.client.admin import DELETE, SET, ConfigEntry
from millstream.client.security_admin import SecurityAdmin
from millstream.connect.connectors.mirror.naming import NameFilter, replication_policy
from millstream.wire.acls import AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

log = logging.getLogger("millstream.connect")

TOPIC = 2
"""Among kinds of resources with settings."""
_STATIC_BROKER = 4
_MAY_EXIST = (ErrorCode.topic_already_exists,)


def create_compacted(cluster: Cluster, topic: str, replicas: int) -> None:
    """One of MirrorMaker's own: a single partition. Who may not create it relies on somebody else."""
    try:
        Admin(cluster).create_if_missing(NewTopic(topic, 1, replicas, {"cleanup.policy": "compact"}))
    except KafkaError as error:
        if error.code not in (ErrorCode.topic_authorization_failed, ErrorCode.cluster_authorization_failed):
            raise


class MirroredTopics:
    """`parsed` are typed settings of the source connector."""

    def __init__(self, parsed: Mapping[str, Any], source: Cluster, target: Cluster) -> None:
        self._parsed = parsed
        self._source, self._target = source, target
        self.policy = replication_policy(parsed)
        self._alias, self._target_alias = parsed["source.cluster.alias"], parsed["target.cluster.alias"]
        self._chosen = NameFilter(parsed["topics"], parsed["topics.exclude"])
        self._setting_chosen = NameFilter((".*",), parsed["config.properties.exclude"])
        self.partitions: dict[str, int] = {}
        self._no_acls = False

    def is_mirrored(self, topic: str) -> bool:
        chosen = self._chosen(topic) or (
            self._parsed["heartbeats.replication.enabled"] and self.policy.is_heartbeats_topic(topic)
        )
        return (
            chosen
            and not self.policy.is_internal(topic)
            and not self.policy.is_cycle(topic, self._target_alias)
        )

    def remote(self, topic: str) -> str:
        return self.policy.remote_topic(self._alias, topic)

    def dealt(self, tasks: int) -> list[list[TopicPartition]]:
        """Partitions in turn, so that those of a large topic are spread."""
        found = [
            TopicPartition(topic, number)
            for topic, count in sorted(self.partitions.items())
            for number in range(count)
        ]
        count = min(tasks, len(found))
        return [found[task::count] for task in range(count)]

    # --- topics and partitions ------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Look at both clusters, and create what the target lacks. Whether the source has changed."""
        found = {name: count for name, count in _counts(self._source).items() if self.is_mirrored(name)}
        existing = _counts(self._target)
        wanted = {self.remote(topic): (topic, count) for topic, count in found.items()}
        self._create({name: both for name, both in wanted.items() if name not in existing})
        self._extend(
            {name: count for name, (_, count) in wanted.items() if 0 < existing.get(name, 0) < count}
        )
        changed, self.partitions = found != self.partitions, found
        return changed

    def _create(self, missing: Mapping[str, tuple[str, int]]) -> None:
        if not missing:
            return
        settings = self._settings_of(topic for topic, _ in missing.values())
        new = [
            NewTopic(
                name,
                count,
                self._parsed["replication.factor"],
                {
                    entry.name: entry.value or ""
                    for entry in settings.get(topic, ())
                    if not entry.is_default or self._parsed["use.defaults.from"] == "source"
                },
            )
            for name, (topic, count) in missing.items()
        ]
        for name, outcome in Admin(self._target).create_topics(new).items():
            if isinstance(outcome, KafkaError) and outcome.code not in _MAY_EXIST:
                log.warning("topic %s cannot be created on %s: %s", name, self._target_alias, outcome)

    def _extend(self, counts: Mapping[str, int]) -> None:
        if not counts:
            return
        for name, error in Admin(self._target).create_partitions(counts).items():
            if error is not None and error.code is not ErrorCode.invalid_partitions:
                log.warning("topic %s gets no more partitions on %s: %s", name, self._target_alias, error)

    # --- settings -------------------------------------------------------------------------------------------

    def _settings_of(self, topics: Iterable[str]) -> dict[str, list[ConfigEntry]]:
        found = Admin(self._source).describe_configs([(TOPIC, topic) for topic in topics])
        return {
            topic: [
                entry
                for entry in entries
                if not entry.read_only
                and not entry.sensitive
                and entry.source != _STATIC_BROKER
                and self._setting_chosen(entry.name)
            ]
            for (_, topic), entries in found.items()
            if not isinstance(entries, KafkaError)
        }

    def sync_configs(self) -> None:
        existing = set(_counts(self._target))
        settings = self._settings_of(topic for topic in self.partitions if self.remote(topic) in existing)
        from_source = self._parsed["use.defaults.from"] == "source"
        changes: dict[tuple[int, str], list[tuple[str, int, str | None]]] = {
            (TOPIC, self.remote(topic)): [
                (entry.name, DELETE, None)
                if entry.is_default and not from_source
                else (entry.name, SET, entry.value)
                for entry in entries
            ]
            for topic, entries in settings.items()
        }
        for (_, name), error in (Admin(self._target).alter_configs(changes) if changes else {}).items():
            if error is not None:
                log.warning("settings of topic %s on %s stay: %s", name, self._target_alias, error)

    # --- ACLs -----------------------------------------------------------------------------------------------

    def sync_acls(self) -> None:
        if self._no_acls:
            return
        wanted = AclFilter(resource_type=ResourceType.TOPIC)
        try:
            found = SecurityAdmin(self._source).describe_acls(wanted)
        except KafkaError as error:
            if error.code is not ErrorCode.security_disabled:
                raise
            self._no_acls = True
            log.info(
                "cluster %s has no authorizer, so no ACLs are mirrored (sync.topic.acls.enabled=false)",
                self._alias,
            )
            return
        bindings = [self.target_acl(one) for one in found if self.acl_is_mirrored(one)]
        if bindings:
            SecurityAdmin(self._target).create_acls(bindings)

    def acl_is_mirrored(self, acl: AclBinding) -> bool:
        writes = acl.permission == Permission.ALLOW and acl.operation == Operation.WRITE
        return acl.pattern_type == PatternType.LITERAL and not writes and self.is_mirrored(acl.name)

    def target_acl(self, acl: AclBinding) -> AclBinding:
        everything = acl.permission == Permission.ALLOW and acl.operation == Operation.ALL
        return acl._replace(
            name=self.remote(acl.name), operation=Operation.READ if everything else acl.operation
        )


def _counts(cluster: Cluster) -> dict[str, int]:
    cluster.refresh()
    return {name: len(topic.partitions) for name, topic in cluster.topics.items()}
