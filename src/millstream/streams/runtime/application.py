"""An application: a topology under a name, on a cluster."""

from __future__ import annotations

import glob
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.client import EARLIEST, LATEST, Admin, ClientConfig, Cluster, NewTopic, list_offsets
from millstream.client.groups import Groups
from millstream.host.errors import SparkLost
from millstream.host.membership import SESSION_MS, planner_group, running_planners
from millstream.host.ownership import fence_owner
from millstream.host.progress import Markers, owners_of
from millstream.streams.errors import StreamsError
from millstream.streams.runtime.task_config import MACHINE, StreamsConfig
from millstream.streams.runtime.task_inputs import input_topics, topics_there
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

RESET_PATIENCE = 5.0


class Streams:
    """A topology on a cluster, under the name of an application.

    client                 properties of Kafka clients that say how to reach the cluster: security.protocol,
                           ssl..., sasl...
    state                  the folder for stores; a folder per application is made in it. `{machine}` in it
                           stands for the name of the machine that a task runs on
    delivery               "exactly_once" or "at_least_once"
    max_bytes_per_task     what a task fetches of a partition at a time, and holds until it is processed.
                           More would not stay in the processor's cache; less is more calls than work
    config                 settings that processors can read, and those of Kafka Streams that are known here:
                           num.standby.replicas, transaction.timeout.ms (10000),
                           windowstore.changelog.additional.retention.ms; num.stream.threads and
                           commit.interval.ms if `start` starts the session; millstream.state.max.bytes (of a
                           task, on disk; 64 GB)
    """

    def __init__(
        self,
        topology: Topology,
        application: str,
        *,
        bootstrap_servers: str = "localhost:9092",
        client: Mapping[str, str] | None = None,
        state: str | Path = "millstream-state",
        delivery: str = "exactly_once",
        errors: Errors | None = None,
        max_bytes_per_task: int = 4 << 20,
        config: dict[str, Any] | None = None,
    ) -> None:
        from millstream.streams.task import Errors

        if delivery not in ("exactly_once", "at_least_once"):
            raise StreamsError(f"delivery is exactly_once or at_least_once, not {delivery}")
        self.topology = topology
        self._folder = Path(state).absolute() / application
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
        there = topics_there(topology, name, cluster)
        inputs = {
            topic: len(cluster.topic(topic).partitions)
            for node in topology.nodes.values()
            if node.type == "source"
            for topic in topology.topics_of(node.name, there)
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
            sources = [
                topic for source in sub_topology.sources for topic in topology.topics_of(source, known)
            ]
            tasks = max((known[topic] for topic in sources if topic in known), default=0)
            if not tasks:  # nothing matches its pattern yet
                continue
            for store in sub_topology.stores:
                spec = topology.stores[store]
                if spec.logged:
                    settings = changelog_settings(spec, additional)
                    wanted.append(NewTopic(spec.changelog(name), tasks, -1, settings))
        return wanted

    def reset(self) -> None:
        """Back to the beginning: forgets what was processed, deletes the internal topics, those of an earlier
        topology too, and the local state. Refused while it runs. Topics of yours, outputs included, stay as
        they are. One that the application both writes and reads (`through`) is read from its end on: what it
        has now will be written once more."""
        name = self.settings.application
        with Cluster(self.settings.client) as cluster:
            self._refuse_while_it_runs(cluster)
            fenced: set[str] = set()
            for stable in (False, True):  # as in `where_to_begin`; nobody knows the owners after this
                for owner in owners_of(cluster, name, stable=stable) - fenced:
                    fence_owner(cluster, name, owner, self.settings.transaction_timeout_ms)
                    fenced.add(owner)
            admin, groups = Admin(cluster), Groups(cluster)
            there, known = admin.topic_names(), [group.group_id for group in groups.listed()]
            outcomes = dict(admin.delete_topics(internal_topics(there, name, self.topology, known)))
            outcomes |= groups.delete([name, planner_group(name)])
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
            Markers(cluster).forget(name)
        for folder in glob.glob(str(self._folder).replace(MACHINE, "*")):
            shutil.rmtree(folder, ignore_errors=True)

    def _refuse_while_it_runs(self, cluster: Cluster) -> None:
        """One that has just been stopped may still be about to leave its group."""
        deadline = time.monotonic() + RESET_PATIENCE
        while found := running_planners(cluster, self.settings.application):
            if time.monotonic() > deadline:
                raise StreamsError(
                    f"{self.settings.application} runs at {', '.join(found)}: stop it first. A process that "
                    f"was killed is gone after {SESSION_MS // 1000} s"
                )
            time.sleep(0.1)

    def lag(self) -> int:
        """How many records of its inputs and repartition topics the application has not processed yet
        (markers of transactions count as records). 0 means that it is done, as long as nobody writes more."""
        name, topology = self.settings.application, self.topology
        with Cluster(self.settings.client) as cluster:
            inputs = input_topics(topology, name, cluster).values()
            topics = {topic for topics in inputs for topic in topics}
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
        self,
        host: str = "127.0.0.1",
        port: int = 7070,
        *,
        allowed_hosts: Iterable[str] = (),
        folder: str | Path | None = None,
    ) -> None:
        """Answers questions about the stores over HTTP until the process is stopped: see `queries`. Best in a
        process of its own. `allowed_hosts` are more names under which browsers reach it, as the services'
        `allowed.hosts`. `folder` is where its copies of the stores lie, unless that is in `state`; one
        process keeps them."""
        try:
            from millstream.streams.runtime.queries import serve
        except ImportError:
            raise StreamsError("interactive queries need millstream[services]") from None
        own = Path(str(self._folder).replace(MACHINE, "queries")) / "views"
        copies = own if folder is None else Path(folder)
        name, client = self.settings.application, self.settings.client
        serve(self.topology, name, client, host, port, copies, allowed_hosts)

    def query(self, spark: SparkSession) -> StreamsWriter:
        """To be returned from a pipeline beside writers of DataFrames: `millstream pipeline run` starts it on
        the host of its session."""
        return StreamsWriter(self, spark)

    def start(
        self, spark: SparkSession | None = None, *, report: bool = True, available_now: bool = False
    ) -> RunningStreams:
        """Makes the internal topics and runs the tasks, on the host of this session, until it is stopped. A
        process that runs the same application ends with that. `report`: into `__millstream_pipelines`.
        `available_now`: it ends by itself when it has processed what was there when it was started."""
        from millstream.host.host import Host
        from millstream.streams.runtime.running import RunningStreams

        self.make_topics()
        try:
            if spark is None:
                host = Host.of_process(self.settings.application, self._host_settings())
            else:
                host = Host.of(spark)
        except SparkLost as error:
            raise StreamsError(f"{self.settings.application} cannot start: {error}") from None
        return RunningStreams(self, host, report=report, available_now=available_now)

    def _host_settings(self) -> dict[str, str]:
        """Those of Kafka Streams that are the host's here: of a session that this application starts."""
        names = {"num.stream.threads": "lanes", "commit.interval.ms": "commit.interval.ms"}
        config = self.settings.config
        return {f"spark.millstream.host.{names[key]}": str(config[key]) for key in names if key in config}


class StreamsWriter:
    """An application that is not started, with the face of Spark's DataStreamWriter. It has no name or
    checkpoint but its own, and of the triggers only `availableNow` means something."""

    def __init__(self, streams: Streams, spark: SparkSession) -> None:
        self._streams, self._spark, self._available_now = streams, spark, False

    def queryName(self, _name: str) -> StreamsWriter:
        return self

    def option(self, _name: str, _value: object) -> StreamsWriter:
        return self

    def trigger(self, *, availableNow: bool | None = None, **_: object) -> StreamsWriter:
        self._available_now = bool(availableNow)
        return self

    def start(self) -> RunningStreams:
        return self._streams.start(self._spark, report=False, available_now=self._available_now)
