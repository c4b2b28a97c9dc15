"""An application: a topology under a name, on a cluster."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.client import EARLIEST, LATEST, Admin, ClientConfig, Cluster, NewTopic, list_offsets
from millstream.client.groups import Groups
from millstream.streams.errors import StreamsError
from millstream.streams.runtime.task_config import StreamsConfig
from millstream.streams.runtime.topics import (
    ADDITIONAL_RETENTION,
    DAY,
    REPARTITION,
    changelog_settings,
    check_partitions,
    intermediate_topics,
    internal_partitions,
    internal_topics,
)
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.streams.runtime.running import RunningStreams
    from millstream.streams.task import Errors
    from millstream.streams.topology import Topology


class Streams:
    """A topology on a cluster, under the name of an application.

    client                 properties of Kafka clients that say how to reach the cluster: security.protocol,
                           ssl..., sasl...
    state_dir              the folder for stores; a folder per application is made in it
    delivery               "exactly_once" or "at_least_once"
    max_bytes_per_task     what a task fetches of a partition at a time, and holds until it is processed.
                           More would not stay in the processor's cache; less is more calls than work
    config                 settings that processors can read
    """

    def __init__(
        self,
        topology: Topology,
        application: str,
        *,
        bootstrap_servers: str = "localhost:9092",
        client: Mapping[str, str] | None = None,
        state_dir: str | Path = "millstream-state",
        delivery: str = "exactly_once",
        errors: Errors | None = None,
        max_bytes_per_task: int = 4 << 20,
        config: dict[str, Any] | None = None,
    ) -> None:
        from millstream.streams.task import Errors

        if delivery not in ("exactly_once", "at_least_once"):
            raise StreamsError(f"delivery is exactly_once or at_least_once, not {delivery}")
        self.topology = topology
        self._folder = Path(state_dir).absolute() / application
        self.settings = StreamsConfig(
            application,
            ClientConfig.of(bootstrap_servers, client),
            str(self._folder / "stores"),
            errors or Errors(),
            delivery == "exactly_once",
            dict(config or {}),
            max_bytes_per_task,
        )

    def make_topics(self) -> list[str]:
        """The repartition and changelog topics that are not there yet."""
        with Cluster(self.settings.client) as cluster:
            made = []
            wanted = self._internal_topics(cluster)
            missing = cluster.refresh(topic.name for topic in wanted)
            there = {
                topic.name: len(cluster.topic(topic.name).partitions)
                for topic in wanted
                if topic.name not in missing
            }
            check_partitions({topic.name: topic.partitions for topic in wanted}, there)
            for topic, outcome in Admin(cluster).create_topics(wanted).items():
                if not isinstance(outcome, KafkaError):
                    made.append(topic)
                elif outcome.code is not ErrorCode.topic_already_exists:
                    raise outcome
            cluster.wait_for_topics(made)
            return made

    def _internal_topics(self, cluster: Cluster) -> list[NewTopic]:
        topology, name = self.topology, self.settings.application
        if any(node.pattern is not None for node in topology.nodes.values()):
            raise StreamsError("an application reads topics by name: patterns work in the test driver only")
        inputs = {
            topic: len(cluster.topic(topic).partitions)
            for node in topology.nodes.values()
            if node.type == "source"
            for topic in node.topics
            if topic not in topology.internal
        }
        counts = internal_partitions(topology, inputs)
        wanted = [
            NewTopic(topology.internal_name(topic, name), count, -1, REPARTITION)
            for topic, count in counts.items()
        ]
        additional = int(self.settings.config.get(ADDITIONAL_RETENTION, DAY))
        known = {**inputs, **counts}
        for sub_topology in topology.sub_topologies():
            sources = [topic for source in sub_topology.sources for topic in topology.nodes[source].topics]
            tasks = max((known[topic] for topic in sources if topic in known), default=1)
            for store in sub_topology.stores:
                spec = topology.stores[store]
                if spec.logged:
                    settings = changelog_settings(spec, additional)
                    wanted.append(NewTopic(spec.changelog(name), tasks, -1, settings))
        return wanted

    def reset(self) -> None:
        """Back to the beginning: forgets what was processed, deletes the internal topics, those of an earlier
        topology too, and the local state. Not while it runs. Topics of yours, outputs included, stay as they
        are. One that the application both writes and reads (`through`) is read from its end on: what it has
        now will be written once more."""
        name = self.settings.application
        with Cluster(self.settings.client) as cluster:
            admin, groups = Admin(cluster), Groups(cluster)
            there, known = admin.topic_names(), [group.group_id for group in groups.listed()]
            outcomes = dict(admin.delete_topics(internal_topics(there, name, self.topology, known)))
            outcomes |= groups.delete([name])
            for error in outcomes.values():
                if error is not None and error.code is not ErrorCode.group_id_not_found:
                    raise error
            topic_partitions = [
                TopicPartition(topic, number)
                for topic in intermediate_topics(self.topology).intersection(there)
                for number in cluster.topic(topic).partitions
            ]
            if topic_partitions:
                ends = list_offsets(cluster, dict.fromkeys(topic_partitions, LATEST))
                for error in groups.commit(
                    name, {topic_partition: end.offset for topic_partition, end in ends.items()}
                ).values():
                    if error is not None:
                        raise error
        shutil.rmtree(self._folder, ignore_errors=True)

    def lag(self) -> int:
        """How many records of its inputs and repartition topics the application has not processed yet
        (markers of transactions count as records). 0 means that it is done, as long as nobody writes more."""
        name, topology = self.settings.application, self.topology
        with Cluster(self.settings.client) as cluster:
            topics = {
                topology.internal_name(topic, name)
                for sub_topology in topology.sub_topologies()
                if not sub_topology.is_global
                for source in sub_topology.sources
                for topic in topology.nodes[source].topics
            }
            topic_partitions = [
                TopicPartition(topic, number)
                for topic in topics
                for number in cluster.topic(topic).partitions
            ]
            # First what is done, then what there is: what a task wrote while it finished is not overlooked.
            done = Groups(cluster).committed(name, topic_partitions)
            ends = list_offsets(cluster, dict.fromkeys(topic_partitions, LATEST))
            begins = list_offsets(cluster, dict.fromkeys(topic_partitions, EARLIEST))
        found = 0
        for topic_partition, end in ends.items():
            committed = done.get(topic_partition)
            if isinstance(committed, KafkaError):
                raise committed
            begin = begins[topic_partition].offset
            found += max(end.offset - max(begin if committed is None else committed.offset, begin), 0)
        return found

    def serve_queries(
        self, host: str = "127.0.0.1", port: int = 7070, *, allowed_hosts: Iterable[str] = ()
    ) -> None:
        """Answers questions about the stores over HTTP until the process is stopped: see `queries`. Best in a
        process of its own. `allowed_hosts` are more names under which browsers reach it, as the services'
        `allowed.hosts`."""
        from millstream.streams.runtime.queries import serve

        serve(self.topology, self.settings.application, self.settings.client, host, port, allowed_hosts)

    def query(self, spark: SparkSession) -> StreamsWriter:
        """To be returned from a pipeline beside writers of DataFrames: `millstream pipeline run` starts it on
        the host of its session."""
        return StreamsWriter(self, spark)

    def start(self, spark: SparkSession | None = None) -> RunningStreams:
        """Makes the internal topics and runs the tasks, on the host of this session, until it is stopped."""
        from millstream.host.host import Host
        from millstream.spark.session import spark as session_for
        from millstream.streams.runtime.running import RunningStreams

        self.make_topics()
        session = spark if spark is not None else session_for(self.settings.application)
        return RunningStreams(self, Host.of(session))


class StreamsWriter:
    """An application that is not started, with the face of Spark's DataStreamWriter. It has no name,
    checkpoint or trigger but its own."""

    def __init__(self, streams: Streams, spark: SparkSession) -> None:
        self._streams, self._spark = streams, spark

    def queryName(self, _name: str) -> StreamsWriter:
        return self

    def option(self, _name: str, _value: object) -> StreamsWriter:
        return self

    def trigger(self, *, availableNow: bool | None = None, **_: object) -> StreamsWriter:
        if availableNow:
            raise StreamsError("an application runs until it is stopped: availableNow is for DataFrames")
        return self

    def start(self) -> RunningStreams:
        return self._streams.start(self._spark)
