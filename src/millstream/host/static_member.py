"""A static member of a group (KIP-345), in a thread of its own: for processes that share work.

What the group is for is its user's: what a member says of itself, what the group's leader hands out, and what
becomes of it. A member that was killed and starts again under the same instance id has its place at once. One
that finds another with its id has been replaced, and stays out.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from millstream.client import ClientConfig, Cluster
from millstream.client.errors import Unreachable
from millstream.client.membership import Assignor, GroupMember
from millstream.host.membership import remove_members
from millstream.wire.errors import ErrorCode, KafkaError

log = logging.getLogger("millstream.host")

RETRY_SECONDS = 0.3


class StaticMember:
    """`metadata` is asked at each join, `assign` decides for all where this member leads the group,
    `assigned` gets what this member was given. `replaced` is called once, when another member with its
    instance id has come."""

    def __init__(
        self,
        client: ClientConfig,
        *,
        group_id: str,
        instance_id: str,
        protocol_type: str,
        protocol: str,
        metadata: Callable[[], bytes],
        assign: Assignor,
        assigned: Callable[[bytes], None],
        replaced: Callable[[], None],
        session_timeout_ms: int,
        heartbeat_interval_ms: int,
        rebalance_timeout_ms: int,
    ) -> None:
        self._group_id, self._instance_id = group_id, instance_id
        self._metadata, self._assign = metadata, assign
        self._assigned, self._replaced = assigned, replaced
        self._session, self._heartbeat = session_timeout_ms / 1000, heartbeat_interval_ms / 1000
        self._cluster = Cluster(replace(client, total_timeout=5.0))
        self._member = GroupMember(
            self._cluster,
            group_id,
            protocol_type=protocol_type,
            protocol=protocol,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            instance_id=instance_id,
            timeout=0.0,
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"member-{group_id}", daemon=True)
        self.generation = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(5)
        self._cluster.close()

    def is_current(self) -> bool:
        """Whether the coordinator was heard within the session: if not, others may do our work by now."""
        return time.monotonic() - self._member.last_contact < self._session

    def _run(self) -> None:
        failing = False
        while not self._stopping.is_set():
            try:
                self._join()
                failing = False
                while not self._stopping.wait(self._heartbeat):
                    self._member.heartbeat()
            except (KafkaError, OSError, ValueError) as error:
                if self._stopping.is_set():
                    break
                if isinstance(error, KafkaError):
                    if error.code is ErrorCode.fenced_instance_id:
                        self._replaced()
                        return
                    if self._member.must_rejoin(error):
                        continue
                if not failing:
                    log.warning("the group %s cannot be reached: %s", self._group_id, error)
                    failing = True
                if isinstance(error, Unreachable):
                    self._cluster.close()
                self._stopping.wait(RETRY_SECONDS)
        try:
            remove_members(self._cluster, self._group_id, [(self._member.member_id, self._instance_id)])
        except (KafkaError, OSError):
            pass  # the session ends by itself

    def _join(self) -> None:
        assignment = self._member.join(self._metadata(), self._assign)
        self.generation = int(self._member.identity()["generation_id"])
        self._assigned(assignment)
