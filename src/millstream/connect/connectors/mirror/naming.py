"""What a mirrored topic is called on the other cluster, and which topics and groups are mirrored.

DefaultReplicationPolicy puts the cluster's alias in front (`us-west.orders`), so a name tells the way that
its records came, and none of them goes round in a circle. IdentityReplicationPolicy keeps names, and cannot
tell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from millstream.connect.config.java_regex import compile_regex

HEARTBEATS = "heartbeats"


class DefaultReplicationPolicy:
    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Of typed settings."""
        self.separator: str = settings["replication.policy.separator"]
        own = settings["replication.policy.internal.topic.separator.enabled"]
        self._internal = self.separator if own else "."

    def remote_topic(self, alias: str, topic: str) -> str:
        return f"{alias}{self.separator}{topic}"

    def topic_source(self, topic: str) -> str | None:
        """The alias of the cluster that it was mirrored from; None for a topic of this cluster."""
        alias, found, rest = topic.partition(self.separator)
        # As Java splits: a name that ends with the separator has no second part.
        return alias if found and rest.replace(self.separator, "") else None

    def upstream_topic(self, topic: str) -> str | None:
        source = self.topic_source(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]

    def original_topic(self, topic: str) -> str:
        upstream = self.upstream_topic(topic)
        return topic if upstream is None or upstream == topic else self.original_topic(upstream)

    def offset_syncs_topic(self, alias: str) -> str:
        return f"mm2-offset-syncs{self._internal}{alias}{self._internal}internal"

    def checkpoints_topic(self, alias: str) -> str:
        return f"{alias}{self._internal}checkpoints{self._internal}internal"

    def is_heartbeats_topic(self, topic: str) -> bool:
        return self.original_topic(topic) == HEARTBEATS

    def is_internal(self, topic: str) -> bool:
        return topic.startswith(("__", ".")) or topic.endswith(
            (f"{self._internal}internal", "-internal", ".internal")
        )

    def is_cycle(self, topic: str, target: str) -> bool:
        """Whether its records come from the cluster that they would go to."""
        source = self.topic_source(topic)
        if source is None or source == target:
            return source is not None
        upstream = self.upstream_topic(topic)
        return upstream is not None and upstream != topic and self.is_cycle(upstream, target)


class IdentityReplicationPolicy(DefaultReplicationPolicy):
    """Heartbeats alone are renamed: their names have to tell clusters apart."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self._source: str = settings["source.cluster.alias"]

    def remote_topic(self, alias: str, topic: str) -> str:
        return super().remote_topic(alias, topic) if topic.endswith(HEARTBEATS) else topic

    def topic_source(self, topic: str) -> str | None:
        return super().topic_source(topic) if topic.endswith(HEARTBEATS) else self._source

    def upstream_topic(self, topic: str) -> str | None:
        return super().upstream_topic(topic) if topic.endswith(HEARTBEATS) else topic


POLICIES = {
    "DefaultReplicationPolicy": DefaultReplicationPolicy,
    "IdentityReplicationPolicy": IdentityReplicationPolicy,
}


def replication_policy(settings: Mapping[str, Any]) -> DefaultReplicationPolicy:
    return POLICIES[settings["replication.policy.class"].rpartition(".")[2]](settings)


class NameFilter:
    """Names that match one of some patterns, and none of others. An empty list matches nothing."""

    def __init__(self, include: Sequence[str], exclude: Sequence[str]) -> None:
        self._include, self._exclude = _pattern(include), _pattern(exclude)

    def __call__(self, name: str) -> bool:
        if self._include is None or not self._include.fullmatch(name):
            return False
        return self._exclude is None or not self._exclude.fullmatch(name)


def _pattern(patterns: Sequence[str]) -> re.Pattern[str] | None:
    return compile_regex("|".join(patterns)) if patterns else None
