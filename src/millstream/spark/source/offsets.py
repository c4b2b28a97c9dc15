"""What a reader asks the cluster before it reads: which partitions there are, and where they start and end.

A broker that has just started, or that does not lead any more, may not know a topic that is there, or an end that others have
seen. So an answer by which something would be missing is asked for again, as often as `fetchOffset.numRetries` says, before it is
believed.
"""

import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from millstream.client import Cluster, Unreachable
from millstream.client.cluster import MOVED
from millstream.client.offsets import EARLIEST as ASK_EARLIEST
from millstream.client.offsets import LATEST as ASK_LATEST
from millstream.client.offsets import list_offsets
from millstream.spark.errors import OptionError, PipelineError
from millstream.spark.source.read_options import (
    EARLIEST,
    FROM_EARLIEST,
    FROM_LATEST,
    LATEST,
    OFFSETS,
    Bound,
    SourceSettings,
)
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

Answer = TypeVar("Answer")


class Missing(OptionError):
    """A topic or partition that an option names is not there."""


class Source:
    """The partitions of one reader, as the cluster has them now."""

    def __init__(self, settings: SourceSettings, cluster: Cluster) -> None:
        self.settings = settings
        self._cluster = cluster

    def places(self) -> list[TopicPartition]:
        """All partitions to read, freshly asked for, so that new ones are among them."""
        return self._again(self._places)

    def earliest(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(places, ASK_EARLIEST)
        return self._again(lambda: self._ask(wanted))

    def latest(
        self, places: Iterable[TopicPartition], known: Mapping[TopicPartition, int] | None = None
    ) -> dict[TopicPartition, int]:
        """The ends of the logs: for read_committed, of what is decided. They should not be before what is `known`."""
        wanted = dict.fromkeys(places, ASK_LATEST)
        return self._again(lambda: self._ask(wanted), lambda found: _reaches(found, known or {}))

    def newest(self, known: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The ends of all partitions that are there now. Those in `known` were there, and had come so far."""

        def ask() -> dict[TopicPartition, int]:
            return self._ask(dict.fromkeys(self._places(missing_is_an_error=False), ASK_LATEST))

        return self._again(ask, lambda found: _reaches(found, known))

    def gone(self, topics: Iterable[str]) -> list[str]:
        """Which of these topics do not exist any more."""
        wanted = set(topics)

        def ask() -> list[str]:
            problems = self._cluster.refresh(wanted)
            return [t for t, e in problems.items() if e.code is ErrorCode.unknown_topic_or_partition]

        return self._again(ask, lambda missing: not missing)

    def _again(self, ask: Callable[[], Answer], good: Callable[[Answer], bool] = lambda _: True) -> Answer:
        """`ask()`, again while something that should be there is missing. The last answer counts, whatever it is."""
        for left in reversed(range(self.settings.tries)):
            try:
                answer = ask()
                if good(answer) or not left:
                    return answer
            except Missing:
                if not left:
                    raise
            except KafkaError as error:
                if not left or error.code not in MOVED or isinstance(error, Unreachable):
                    raise  # a broker that is away has been waited for already
            time.sleep(self.settings.pause)
        raise AssertionError("there is at least one try")

    def _places(self, missing_is_an_error: bool = True) -> list[TopicPartition]:
        settings, cluster = self.settings, self._cluster
        if settings.pattern is not None:
            cluster.refresh()
            matches = re.compile(settings.pattern).search  # any part of the name, as in Spark's source
            topics = [t for t in cluster.topics.values() if not t.internal and matches(t.name)]
            return sorted(TopicPartition(t.name, p) for t in topics for p in t.partitions)
        wanted = settings.topics or tuple(dict.fromkeys(topic for topic, _ in settings.assigned))
        problems = cluster.refresh(wanted)
        option = "subscribe" if settings.topics else "assign"
        for topic, problem in problems.items():
            if problem.code is not ErrorCode.unknown_topic_or_partition:
                raise problem
            if missing_is_an_error:
                raise Missing(f"topic '{topic}' of option '{option}' does not exist")
        found = [
            TopicPartition(t, p) for t in wanted if t in cluster.topics for p in cluster.topics[t].partitions
        ]
        if not settings.assigned:
            return sorted(found)
        for topic, partition in settings.assigned:
            if TopicPartition(topic, partition) not in found and missing_is_an_error:
                raise Missing(f"partition {topic}-{partition} of option 'assign' does not exist")
        return sorted(set(settings.assigned) & set(found))

    def _ask(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = (
            list_offsets(self._cluster, wanted, read_committed=self.settings.read_committed) if wanted else {}
        )
        return {place: answer.offset for place, answer in found.items()}

    # --- where to start and to end -------------------------------------------------------------------------------------

    def resolve(self, bound: Bound, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset that a bound means for each partition."""
        if bound.kind == EARLIEST:
            return self.earliest(places)
        if bound.kind == LATEST:
            return self.latest(places)
        self._check_named(bound, places)
        if bound.kind == OFFSETS:
            return self._given_offsets(bound, places)
        return self._by_time(bound, places)

    def _check_named(self, bound: Bound, places: list[TopicPartition]) -> None:
        """Offsets and timestamps per partition must name the partitions that are read, all of them and no other."""
        if bound.moment is not None:
            return
        for topic, partition in sorted(set(bound.per_place) - set(places)):
            raise OptionError(
                f"option '{bound.option}' names partition {topic}-{partition}, which is not read"
            )
        for topic, partition in sorted(set(places) - set(bound.per_place)):
            raise OptionError(
                f"option '{bound.option}' does not say anything about partition {topic}-{partition}"
            )

    def _given_offsets(self, bound: Bound, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        first, last = self.earliest(places), self.latest(places)
        found: dict[TopicPartition, int] = {}
        for place in places:
            offset = bound.per_place[place]
            if offset == FROM_EARLIEST:
                offset = first[place]
            elif offset == FROM_LATEST:
                offset = last[place]
            elif not first[place] <= offset <= last[place]:
                name = f"{place[0]}-{place[1]}"
                self.lost(
                    f"offset {offset} of option '{bound.option}' is outside of {name}, "
                    f"which has {first[place]} to {last[place]}"
                )
                offset = min(max(offset, first[place]), last[place])
            found[place] = offset
        return found

    def _by_time(self, bound: Bound, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        moments = {p: bound.per_place[p] if bound.moment is None else bound.moment for p in places}
        found = self._ask(moments)
        late = [place for place in places if found[place] < 0]
        if late and not bound.or_latest:
            topic, partition = late[0]
            raise OptionError(
                f"option '{bound.option}': no record of partition {topic}-{partition} is as young as {moments[late[0]]} "
                "(option 'startingOffsetsByTimestampStrategy' = latest reads what comes next)"
            )
        return found | self.latest(late)

    def lost(self, what: str) -> None:
        """Data that should be there is not: an error, or a line in the log."""
        if self.settings.fail_on_data_loss:
            raise PipelineError(
                f"{what}; some data may be lost (option 'failOnDataLoss' = false goes on without it)"
            )
        print(f"millstream: {what}; going on without it", file=sys.stderr)


def _reaches(found: Mapping[TopicPartition, int], known: Mapping[TopicPartition, int]) -> bool:
    return all(found.get(place, -1) >= offset for place, offset in known.items())
