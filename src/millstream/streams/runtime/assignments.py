"""What goes between the driver and the tasks of an application: its configuration, its plan, assignments and
results.

Spark gives a new Python process ten seconds to report back, on a busy machine too. So the process on the
driver, which only plans, loads little: it gets the plan of a topology, not the topology with all its
functions and serdes.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.client.config import ClientConfig

if TYPE_CHECKING:
    from millstream.streams.task import Errors
    from millstream.streams.topology import Topology

log = logging.getLogger("millstream.streams")

_MAX_METADATA = 4000  # bytes; the default of offset.metadata.max.bytes is 4096


@dataclass(frozen=True, slots=True)
class StreamsConfig:
    """What every task of an application knows. Goes to Spark's workers by value."""

    application: str
    client: ClientConfig
    folder: str
    errors: Errors
    exactly_once: bool = True
    config: dict[str, Any] = field(default_factory=dict)


class SubTopologyPlan(NamedTuple):
    """A sub-topology with its topics, as they are called in the cluster."""

    id: int
    topics: list[str]
    timers: bool  # whether it may have timers


class Plan(NamedTuple):
    """What must be known of an application to plan its tasks.

    internal    its own repartition topics
    from_end    topics whose beginning is of no interest
    """

    application: str
    client: ClientConfig
    sub_topologies: list[SubTopologyPlan]
    internal: frozenset[str]
    from_end: frozenset[str]

    @classmethod
    def of(cls, settings: StreamsConfig, topology: Topology) -> Plan:
        from millstream.streams.operators.processors import RunProcessor

        name, nodes = settings.application, topology.nodes
        sub_topologies = [
            SubTopologyPlan(
                sub_topology.id,
                sorted(
                    {
                        topology.internal_name(topic, name)
                        for source in sub_topology.sources
                        for topic in nodes[source].topics
                    }
                ),
                any(isinstance(nodes[one].operator, RunProcessor) for one in sub_topology.nodes),
            )
            for sub_topology in topology.sub_topologies()
            if not sub_topology.is_global
        ]
        internal = frozenset(topology.internal_name(topic, name) for topic in topology.internal)
        from_end = (node.topics for node in nodes.values() if node.reset == "latest")
        return cls(
            name,
            settings.client,
            sub_topologies,
            internal,
            frozenset(topic for topics in from_end for topic in topics),
        )


@dataclass(frozen=True, slots=True)
class TaskAssignment:
    """A sub-topology, a partition number, and the range [first, until) of each topic. `timers`: they may be
    due, whether or not there are records."""

    sub_topology: int
    partition: int
    ranges: tuple[tuple[str, int, int], ...]
    timers: bool = False


@dataclass(slots=True)
class TaskResult:
    read: int
    written: int


class TaskMetadata(NamedTuple):
    """What a task commits beside its offsets for the process that continues it: when its next timer by the
    wall clock is due, and what it knows of time (`StreamTask.times`)."""

    timer: int | None
    times: list[list[int]]

    def encode(self) -> str:
        text = json.dumps([1, *self], separators=(",", ":"))
        if len(text) > _MAX_METADATA:
            log.warning("a task knows too many times to keep them with its offsets")
            text = json.dumps([1, self.timer, []])
        return text

    @classmethod
    def decode(cls, text: str) -> TaskMetadata:
        """Nothing, if somebody else wrote that text."""
        try:
            version, timer, times = json.loads(text)
        except (ValueError, TypeError):
            return cls(None, [])
        return cls(timer, times) if version == 1 else cls(None, [])
