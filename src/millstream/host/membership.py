"""One planner for an application, by group membership: the newest one runs it, the one before it ends.

The planner is a static member (KIP-345) of the group `<application>-planner`, always under the same instance
id. So a process that takes the application over need not wait for the session of one that was killed: the
broker gives it the membership at once, and the older one learns with its next heartbeat that it is fenced.
Between that moment and the end of its units, transactional ids keep the two apart.

The group shows to everybody that the application runs, and where; `streams reset` looks there.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping

from millstream.client import ClientConfig, Cluster
from millstream.client.coordinators import GROUP, Coordinators
from millstream.client.groups import Groups
from millstream.client.membership import GroupMember
from millstream.wire.errors import ErrorCode, KafkaError

log = logging.getLogger("millstream.host")

SESSION_MS = 10_000
HEARTBEAT_SECONDS = 1.0
"""Shorter than the pause of a unit that was fenced (`planner.FENCED_PAUSE`): a planner that has been replaced
knows it before its units would fence those of the other in return."""
INSTANCE = "planner"
PROTOCOL_TYPE, PROTOCOL = "millstream-planner", "newest"


def planner_group(application: str) -> str:
    return f"{application}-planner"


class PlannerMembership:
    """Held from `join` to `leave`. `fenced` is called, once, in a thread of this object, when another process
    has taken the application over."""

    def __init__(self, client: ClientConfig, application: str, fenced: Callable[[], None]) -> None:
        self._cluster, self._fenced = Cluster(client), fenced
        self._application = application
        self._member = GroupMember(
            self._cluster,
            planner_group(application),
            protocol_type=PROTOCOL_TYPE,
            protocol=PROTOCOL,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            instance_id=INSTANCE,
        )
        self._metadata = json.dumps({"host": socket.gethostname(), "pid": os.getpid()}).encode()
        self._left = threading.Event()
        self._thread: threading.Thread | None = None

    def join(self) -> None:
        """Whoever had it is fenced from now on. Does not wait: a broker holds the first member of a group for
        a while, to see whether others come (`group.initial.rebalance.delay.ms`)."""
        name = f"host-member-{self._application}"
        self._thread = threading.Thread(target=self._keep, name=name, daemon=True)
        self._thread.start()

    def leave(self, timeout: float = 1.0) -> None:
        """The application does not run any more; nobody has to wait for the session's end."""
        self._left.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _join(self) -> None:
        self._member.join(self._metadata, self._assign)

    @staticmethod
    def _assign(members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return dict.fromkeys(members, b"")

    def _keep(self) -> None:
        """A member that the broker has forgotten, because it was away for longer than a session, joins again:
        nobody else is there, or the answer would be another."""
        joined = False
        try:
            while not self._left.is_set():
                try:
                    if joined:
                        self._member.heartbeat()
                    else:
                        self._join()
                        joined = True
                except KafkaError as error:
                    if error.code is ErrorCode.fenced_instance_id:
                        if not self._left.is_set():
                            log.error("%s: another process runs this application now", self._application)
                            self._fenced()
                        return
                    joined = joined and not self._member.must_rejoin(error)
                    if error.code is not ErrorCode.rebalance_in_progress:
                        log.warning("%s: %s", self._application, error)
                self._left.wait(HEARTBEAT_SECONDS)
            if joined:
                self._leave()
        finally:
            self._cluster.close()

    def _leave(self) -> None:
        try:
            remove_members(self._cluster, self._member.group_id, [(self._member.member_id, INSTANCE)])
        except KafkaError as error:
            log.info("%s: %s", self._application, error)


def remove_members(cluster: Cluster, group: str, members: list[tuple[str, str | None]]) -> None:
    """As they leave by themselves; static members only leave this way."""
    leaving = [
        {"member_id": member_id, "group_instance_id": instance_id, "reason": "closed"}
        for member_id, instance_id in members
    ]
    Coordinators(cluster, GROUP).call(
        group,
        lambda connection: connection.request(
            "leave_group", within=2.0, group_id=group, member_id="", members=leaving
        ),
    )


def running_planners(cluster: Cluster, application: str) -> list[str]:
    """Where the application runs, as `host (process)`; nothing if it does not."""
    group = planner_group(application)
    found = Groups(cluster).describe([group])[group]
    if isinstance(found, KafkaError):
        if found.code is ErrorCode.group_id_not_found:
            return []
        raise found
    return [member.host or member.member_id for member in found.members]
