"""What a reader asks the cluster before it reads: which partitions there are, and where they start and end.

A broker that has just started, or that does not lead any more, may not know a topic that is there, or an end
that others have seen. So an answer by which something would be missing is looked up again, as often as
`fetchOffset.numRetries` says, before it is believed.
"""

import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from millstream.client import Cluster, Unreachable
from millstream.client.cluster import MOVED
from millstream.client.offsets import EARLIEST as EARLIEST_OFFSET
from millstream.client.offsets import LATEST as LATEST_OFFSET
from millstream.client.offsets import list_offsets
from millstream.spark.errors import OptionError, PipelineError
from millstream.spark.source.read_options import (
    EARLIEST,
    FROM_EARLIEST,
    FROM_LATEST,
    LATEST,
    OFFSETS,
    Bound,
    ReadOptions,
)
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

Answer = TypeVar("Answer")


class Missing(OptionError):
    """A topic or partition that an option names is not there."""


class Source:
    """The partitions of one reader, as the cluster has them now."""

    def __init__(self, options: ReadOptions, cluster: Cluster) -> None:
        self.options = options
        self._cluster = cluster

    def topic_partitions(self) -> list[TopicPartition]:
        """All partitions to read, freshly looked up, so that new ones are among them."""
        return self._again(self._find_partitions)

    def earliest(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(topic_partitions, EARLIEST_OFFSET)
        return self._again(lambda: self._list_offsets(wanted))

    def latest(
        self, topic_partitions: Iterable[TopicPartition], known: Mapping[TopicPartition, int] | None = None
    ) -> dict[TopicPartition, int]:
        """The ends of the logs: for read_committed, of what is decided. They should not be before what is
        `known`."""
        wanted = dict.fromkeys(topic_partitions, LATEST_OFFSET)
        return self._again(lambda: self._list_offsets(wanted), lambda found: _reaches(found, known or {}))

    def newest(self, known: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The ends of all partitions that are there now. Those in `known` were there, and had come so far."""

        def look_up() -> dict[TopicPartition, int]:
            return self._list_offsets(
                dict.fromkeys(self._find_partitions(missing_is_an_error=False), LATEST_OFFSET)
            )

        return self._again(look_up, lambda found: _reaches(found, known))

    def gone(self, topics: Iterable[str]) -> list[str]:
        """Which of these topics do not exist any more."""
        wanted = set(topics)

        def look_up() -> list[str]:
            problems = self._cluster.refresh(wanted)
            return [
                topic
                for topic, problem in problems.items()
                if problem.code is ErrorCode.unknown_topic_or_partition
            ]

        return self._again(look_up, lambda missing: not missing)

    def _again(
        self, look_up: Callable[[], Answer], good: Callable[[Answer], bool] = lambda _: True
    ) -> Answer:
        """`look_up()`, again while anything that should be there is missing. The last answer
        counts, whatever it is."""
        for left in reversed(range(self.options.tries)):
            try:
                answer = look_up()
                if good(answer) or not left:
                    return answer
            except Missing:
                if not left:
                    raise
            except KafkaError as error:
                if not left or error.code not in MOVED or isinstance(error, Unreachable):
                    raise  # a broker that is away has been waited for already
            time.sleep(self.options.pause)
        raise AssertionError("there is at least one try")

    def _find_partitions(self, missing_is_an_error: bool = True) -> list[TopicPartition]:
        options, cluster = self.options, self._cluster
        if options.pattern is not None:
            cluster.refresh()
            matches = re.compile(options.pattern).search  # any part of the name, as in Spark's source
            topics = [
                topic for topic in cluster.topics.values() if not topic.internal and matches(topic.name)
            ]
            return sorted(
                TopicPartition(topic.name, number) for topic in topics for number in topic.partitions
            )
        wanted = options.topics or tuple(dict.fromkeys(topic for topic, _ in options.assigned))
        problems = cluster.refresh(wanted)
        option = "subscribe" if options.topics else "assign"
        for topic, problem in problems.items():
            if problem.code is not ErrorCode.unknown_topic_or_partition:
                raise problem
            if missing_is_an_error:
                raise Missing(f"topic '{topic}' of option '{option}' does not exist")
        found = [
            TopicPartition(name, number)
            for name in wanted
            if name in cluster.topics
            for number in cluster.topics[name].partitions
        ]
        if not options.assigned:
            return sorted(found)
        for topic, partition in options.assigned:
            if TopicPartition(topic, partition) not in found and missing_is_an_error:
                raise Missing(f"partition {topic}-{partition} of option 'assign' does not exist")
        return sorted(set(options.assigned) & set(found))

    def _list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = (
            list_offsets(self._cluster, wanted, read_committed=self.options.read_committed) if wanted else {}
        )
        return {topic_partition: answer.offset for topic_partition, answer in found.items()}

    # --- where to start and to end --------------------------------------------------------------------------

    def resolve(self, bound: Bound, topic_partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset that a bound means for each partition."""
        if bound.type == EARLIEST:
            return self.earliest(topic_partitions)
        if bound.type == LATEST:
            return self.latest(topic_partitions)
        self._check_named(bound, topic_partitions)
        if bound.type == OFFSETS:
            return self._given_offsets(bound, topic_partitions)
        return self._by_time(bound, topic_partitions)

    def _check_named(self, bound: Bound, topic_partitions: list[TopicPartition]) -> None:
        """Offsets and timestamps per partition must name the partitions that are read, all of them and no
        other."""
        if bound.moment is not None:
            return
        for topic, partition in sorted(set(bound.per_partition) - set(topic_partitions)):
            raise OptionError(
                f"option '{bound.option}' names partition {topic}-{partition}, which is not read"
            )
        for topic, partition in sorted(set(topic_partitions) - set(bound.per_partition)):
            raise OptionError(
                f"option '{bound.option}' does not say anything about partition {topic}-{partition}"
            )

    def _given_offsets(
        self, bound: Bound, topic_partitions: list[TopicPartition]
    ) -> dict[TopicPartition, int]:
        first, last = self.earliest(topic_partitions), self.latest(topic_partitions)
        found: dict[TopicPartition, int] = {}
        for topic_partition in topic_partitions:
            offset = bound.per_partition[topic_partition]
            if offset == FROM_EARLIEST:
                offset = first[topic_partition]
            elif offset == FROM_LATEST:
                offset = last[topic_partition]
            elif not first[topic_partition] <= offset <= last[topic_partition]:
                self.lost(
                    f"offset {offset} of option '{bound.option}' is outside of {topic_partition}, "
                    f"which has {first[topic_partition]} to {last[topic_partition]}"
                )
                offset = min(max(offset, first[topic_partition]), last[topic_partition])
            found[topic_partition] = offset
        return found

    def _by_time(self, bound: Bound, topic_partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        moments = {
            topic_partition: bound.per_partition[topic_partition] if bound.moment is None else bound.moment
            for topic_partition in topic_partitions
        }
        found = self._list_offsets(moments)
        late = [topic_partition for topic_partition in topic_partitions if found[topic_partition] < 0]
        if late and not bound.or_latest:
            topic, partition = late[0]
            raise OptionError(
                f"option '{bound.option}': no record of partition {topic}-{partition} is as young as "
                f"{moments[late[0]]} "
                "(option 'startingOffsetsByTimestampStrategy' = latest reads what comes next)"
            )
        return found | self.latest(late)

    def lost(self, what: str) -> None:
        """Data that should be there is not: an error, or a line in the log."""
        if self.options.fail_on_data_loss:
            raise PipelineError(
                f"{what}; some data may be lost (option 'failOnDataLoss' = false goes on without it)"
            )
        print(f"millstream: {what}; going on without it", file=sys.stderr)


def _reaches(found: Mapping[TopicPartition, int], known: Mapping[TopicPartition, int]) -> bool:
    return all(found.get(topic_partition, -1) >= offset for topic_partition, offset in known.items())
