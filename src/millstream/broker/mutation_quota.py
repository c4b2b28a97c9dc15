"""How many partitions a client may create and delete in a second: `controller_mutation_rate` (KIP-599).

A version of a request that knows THROTTLING_QUOTA_EXCEEDED is held to its quota strictly: a topic that comes
when the bucket is overdrawn is refused with that error, and the response says for how long. Older versions
get all that they ask for, and are told to wait. Either way the connection is muted for the throttle time of
the response (see `quotas`). Topics that Metadata creates count, too.

As in Kafka, only changes that the controller would make are counted: an existing topic that is to be created
costs nothing. So where a client has a quota, its request is first validated, then counted, then carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from millstream.broker.rates import now_ms
from millstream.cluster.commands import CreateTopics, NewTopic, TopicCreated
from millstream.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from millstream.broker.network.dispatch import Call
    from millstream.broker.rates import TokenBucket
    from millstream.broker.server import Broker

THROTTLED = (ErrorCode.throttling_quota_exceeded, "The throttling quota has been exceeded.")


class MutationQuota:
    """What is left of a client's quota while one of its requests is carried out."""

    def __init__(self, bucket: TokenBucket, strict: bool) -> None:
        self._bucket = bucket
        self._strict = strict
        self._overdrawn = False

    def take(self, partitions: int) -> bool:
        """Whether as many may be made or go now."""
        now = now_ms()
        if self._strict:
            if self._bucket.over(now) > 0:
                self._overdrawn = True
                return False
            self._bucket.record(partitions, now)
        elif self._bucket.record(partitions, now) > 0:
            self._overdrawn = True
        return True

    def wait(self) -> timedelta:
        """What the client is told at the end, once: nothing if the last of its changes was still allowed."""
        if not self._overdrawn:
            return timedelta(0)
        wait_ms = round(self._bucket.over(now_ms()))
        self._bucket.throttled_ms += wait_ms
        return timedelta(milliseconds=wait_ms)


def mutation_quota(broker: Broker, call: Call, strict: bool) -> MutationQuota | None:
    """None where the client has no such quota."""
    bucket = broker.quotas.mutations(call.principal, call.connection.client_id)
    return None if bucket is None else MutationQuota(bucket, strict)


async def create_within(
    quota: MutationQuota,
    topics: Sequence[NewTopic],
    submit: Callable[[CreateTopics], Awaitable[list[TopicCreated]]],
) -> list[TopicCreated]:
    """Create what can be created and the quota allows; one result for each topic."""
    by_name = {topic.name: topic for topic in topics}
    results, allowed = [], []
    for checked in await submit(CreateTopics(topics, True)):
        if checked.error is not ErrorCode.none:
            results.append(checked)
        elif quota.take(checked.num_partitions):
            allowed.append(by_name[checked.name])
        else:
            results.append(TopicCreated(checked.name, *THROTTLED))
    if allowed:
        results += await submit(CreateTopics(allowed))
    return results


def reasons(results: Sequence[TopicCreated]) -> dict[str, ErrorCode]:
    """Why topics were not created, for the response to a Metadata request. Clients do not expect the error of
    a quota there: such a topic is just not there yet, and they ask again."""
    return {
        result.name: result.error
        for result in results
        if result.error not in (ErrorCode.none, ErrorCode.throttling_quota_exceeded)
    }
