"""One leader among the instances of a registry, through membership in a Kafka group.

All instances join a group with protocol type `sr`, and each says who it is. The group's own leader picks the registry's
leader, for everyone the same: the one who led before if it is still there, else the eligible instance with the smallest
address. The JSON that they exchange is Confluent's, so that instances of both kinds can be in one group.

Membership only says who should lead. That no one else writes is made sure in the topic (see there). `holds` lets a leader
that was paused for longer than its session find out before it tries.
"""

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from millstream.client import ClientConfig, Cluster, Connection
from millstream.client.errors import Unreachable, check
from millstream.registry.kafka import coordinator
from millstream.wire.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

PROTOCOL_TYPE = "sr"
PROTOCOL = "v0"
PAUSE = 0.3


@dataclass(frozen=True, slots=True)
class Identity:
    """An instance: where the others reach it, and whether it may lead."""

    scheme: str
    host: str
    port: int
    eligible: bool = True

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def to_json(self, leads: bool) -> dict[str, Any]:
        return {
            "version": 1,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.eligible,
            "scheme": self.scheme,
            "leader": leads,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Identity":
        return cls(
            str(value.get("scheme") or "http"),
            str(value["host"]),
            int(value["port"]),
            bool(value.get("master_eligibility", True)),
        )


@dataclass(frozen=True, slots=True)
class ElectionSettings:
    group: str = "schema-registry"
    session_ms: int = 10_000
    heartbeat_ms: int = 3_000
    rebalance_ms: int = 300_000


def choose(members: dict[str, dict[str, Any]]) -> tuple[str, dict[str, Any]] | None:
    """The member that is to lead, by member id and identity; None if none is eligible."""
    eligible = {
        member: identity for member, identity in members.items() if identity.get("master_eligibility", True)
    }
    if not eligible:
        return None
    leading = [member for member, identity in eligible.items() if identity.get("leader")]
    if len(leading) == 1:
        return leading[0], eligible[leading[0]]
    chosen = min(eligible, key=lambda member: Identity.from_json(eligible[member]).url)
    return chosen, eligible[chosen]


class Election:
    """Runs in a thread of its own; `changed` is called from there with the leader (None: nobody) and whether that is me."""

    def __init__(
        self,
        config: ClientConfig,
        settings: ElectionSettings,
        me: Identity,
        changed: Callable[[Identity | None, bool], None],
    ) -> None:
        self._config = replace(config, total_timeout=5.0)
        self._settings = settings
        self._me = me
        self._changed = changed
        self._cluster = Cluster(self._config)
        self._member = ""
        self._generation = -1
        self._leads = False
        self._last_contact = 0.0
        self._rejoin = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="schemas-election", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Leave the group, so that the others need not wait for the session to end."""
        self._stopping.set()
        self._rejoin.set()
        self._thread.join(5)
        self._cluster.close()

    def holds(self) -> bool:
        """Whether the last word from the coordinator is recent enough to rely on."""
        return time.monotonic() - self._last_contact < self._settings.session_ms / 1000

    def rejoin(self) -> None:
        """Somebody else turned out to lead: ask the group again."""
        self._leads = False
        self._rejoin.set()

    # The thread

    def _run(self) -> None:
        failing = False
        while not self._stopping.is_set():
            try:
                connection = coordinator(self._cluster, self._settings.group)
                self._join(connection)
                failing = False
                self._stay(connection)
            except (KafkaError, OSError, ValueError, KeyError) as error:
                if self._stopping.is_set():
                    break
                code = error.code if isinstance(error, KafkaError) else ErrorCode.none
                if code in (ErrorCode.rebalance_in_progress, ErrorCode.member_id_required):
                    continue
                if code in (
                    ErrorCode.unknown_member_id,
                    ErrorCode.illegal_generation,
                    ErrorCode.fenced_instance_id,
                ):
                    self._member = ""
                    self._told(None)
                    continue
                if not failing:
                    log.warning("the group %s cannot be reached: %s", self._settings.group, error)
                    failing = True
                if isinstance(error, Unreachable):
                    self._cluster.close()
                if not self.holds():
                    self._told(None)
                self._stopping.wait(PAUSE)
        self._leave()

    def _join(self, connection: Connection) -> None:
        settings = self._settings
        self._rejoin.clear()
        self._last_contact = time.monotonic()  # a member that is joining is not given up by the group
        identity = json.dumps(self._me.to_json(self._leads)).encode()
        answer = self._ask_to_join(connection, identity)
        if answer.error_code is ErrorCode.member_id_required:  # the group gives a name first
            self._member = str(answer.member_id)
            answer = self._ask_to_join(connection, identity)
        check(answer.error_code, subject=f"group {settings.group}")
        self._member = str(answer.member_id)
        self._generation = int(answer.generation_id)
        assignments = []
        if answer.leader == self._member:
            assignments = self._assign({str(one.member_id): one.metadata for one in answer.members})
        began = time.monotonic()
        answer = connection.request(
            "sync_group",
            within=settings.rebalance_ms / 1000 + 10,
            group_id=settings.group,
            generation_id=self._generation,
            member_id=self._member,
            group_instance_id=None,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=assignments,
        )
        check(answer.error_code, subject=f"group {settings.group}")
        self._last_contact = began
        assignment = json.loads(bytes(answer.assignment) or b"{}")
        if assignment.get("error"):
            log.error("two registries of group %s have the same address; set host.name", settings.group)
        leader = assignment.get("master_identity")
        if leader is None:
            self._told(None)
        else:
            self._told(Identity.from_json(leader), me=assignment.get("master") == self._member)

    def _ask_to_join(self, connection: Connection, identity: bytes) -> Any:
        settings = self._settings
        return connection.request(
            "join_group",
            within=settings.rebalance_ms / 1000 + 10,
            group_id=settings.group,
            session_timeout=settings.session_ms,
            rebalance_timeout=settings.rebalance_ms,
            member_id=self._member,
            group_instance_id=None,
            protocol_type=PROTOCOL_TYPE,
            protocols=[{"name": PROTOCOL, "metadata": identity}],
            reason=None,
        )

    def _assign(self, members: dict[str, Any]) -> list[dict[str, Any]]:
        identities = {member: json.loads(bytes(metadata)) for member, metadata in members.items()}
        urls = {Identity.from_json(identity).url for identity in identities.values()}
        assignment: dict[str, Any] = {"version": 1, "error": 0 if len(urls) == len(identities) else 1}
        chosen = choose(identities)
        if chosen is not None:
            assignment["master"], assignment["master_identity"] = chosen
        text = json.dumps(assignment).encode()
        return [{"member_id": member, "assignment": text} for member in identities]

    def _stay(self, connection: Connection) -> None:
        """Heartbeats, until the group changes."""
        while not self._stopping.is_set():
            if self._rejoin.wait(self._settings.heartbeat_ms / 1000):
                return
            began = time.monotonic()
            answer = connection.request(
                "heartbeat",
                within=self._settings.session_ms / 1000,
                group_id=self._settings.group,
                generation_id=self._generation,
                member_id=self._member,
                group_instance_id=None,
            )
            check(answer.error_code, subject=f"group {self._settings.group}")
            self._last_contact = began

    def _told(self, leader: Identity | None, me: bool = False) -> None:
        self._leads = me
        self._changed(leader, me)

    def _leave(self) -> None:
        if not self._member:
            return
        try:
            coordinator(self._cluster, self._settings.group).request(
                "leave_group",
                within=2.0,
                group_id=self._settings.group,
                member_id=self._member,
                members=[{"member_id": self._member, "group_instance_id": None, "reason": None}],
            )
        except (KafkaError, OSError):
            pass  # the session ends by itself
