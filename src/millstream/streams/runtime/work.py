"""What goes between the driver and the tasks of an application: settings, plans, work, and what a task leaves for the next process.

Spark gives a new Python process ten seconds to report back, on a busy machine too. So the process on the driver, which only plans, loads
little: it is told the plan of a topology, not the topology with all its functions and serdes.
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

_MOST_METADATA = 4000  # bytes; brokers take 4096 unless they are told otherwise


@dataclass(frozen=True, slots=True)
class Settings:
    """What every task of an application knows. Goes to Spark's workers by value."""

    application: str
    client: ClientConfig
    folder: str
    errors: Errors
    exactly_once: bool = True
    config: dict[str, Any] = field(default_factory=dict)


class Group(NamedTuple):
    """A sub-topology with its topics, as they are called in the cluster."""

    id: int
    topics: list[str]
    timers: bool  # whether it may have timers


class Plan(NamedTuple):
    """What is to be known of an application to plan its work.

    internal    its own repartition topics
    from_end    topics whose beginning is of no interest
    """

    application: str
    client: ClientConfig
    groups: list[Group]
    internal: frozenset[str]
    from_end: frozenset[str]

    @classmethod
    def of(cls, settings: Settings, topology: Topology) -> Plan:
        from millstream.streams.operators.processors import RunProcessor

        name, nodes = settings.application, topology.nodes
        groups = [
            Group(
                group.id,
                sorted(
                    {
                        topology.internal_name(topic, name)
                        for source in group.sources
                        for topic in nodes[source].topics
                    }
                ),
                any(isinstance(nodes[one].operator, RunProcessor) for one in group.nodes),
            )
            for group in topology.sub_topologies()
            if not group.is_global
        ]
        internal = frozenset(topology.internal_name(topic, name) for topic in topology.internal)
        from_end = (node.topics for node in nodes.values() if node.reset == "latest")
        return cls(
            name,
            settings.client,
            groups,
            internal,
            frozenset(topic for topics in from_end for topic in topics),
        )


@dataclass(frozen=True, slots=True)
class Work:
    """[first, until) of each topic, on one partition number. `timers`: they may be due, whether or not there are records."""

    sub_topology: int
    partition: int
    ranges: tuple[tuple[str, int, int], ...]
    timers: bool = False


@dataclass(slots=True)
class Done:
    read: int
    written: int


class Memory(NamedTuple):
    """What a task leaves beside its offsets for the process that goes on with it: when its next timer by the wall clock is due,
    and the times that it has seen (`Task.memory`)."""

    timer: int | None
    times: list[list[int]]

    def written(self) -> str:
        text = json.dumps([1, *self], separators=(",", ":"))
        if len(text) > _MOST_METADATA:
            log.warning("a task knows too many times to keep them with its offsets")
            text = json.dumps([1, self.timer, []])
        return text

    @classmethod
    def read(cls, text: str) -> Memory:
        """Of a text that somebody else wrote: nothing."""
        try:
            version, timer, times = json.loads(text)
        except (ValueError, TypeError):
            return cls(None, [])
        return cls(timer, times) if version == 1 else cls(None, [])
