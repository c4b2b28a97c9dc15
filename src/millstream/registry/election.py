"""One leader among the instances of a registry, through membership in a Kafka group.

All instances join a group with protocol type `sr`, and each says who it is. The group's own leader picks the
registry's leader: the one that led before if it is still there, else the eligible instance with the smallest
address. The JSON that they exchange is Confluent's, so that Confluent's instances and ours can be in one
group.

Membership only says who should lead. That nobody else writes is ensured by the topic (see schemas_topic).
With `is_current` a leader that was paused for longer than its session finds out before it tries to write.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from millstream.client import ClientConfig, Cluster
from millstream.client.errors import Unreachable
from millstream.client.membership import GroupMember
from millstream.wire.errors import KafkaError

log = logging.getLogger(__name__)

PROTOCOL_TYPE = "sr"
PROTOCOL = "v0"
RETRY_SECONDS = 0.3
LEAVE_SECONDS = 2.0


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
class ElectionConfig:
    group_id: str = "schema-registry"
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 300_000


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
    """Runs in a thread of its own, and calls `changed` from there with the leader (None: nobody) and whether
    it is this instance."""

    def __init__(
        self,
        client_config: ClientConfig,
        config: ElectionConfig,
        identity: Identity,
        changed: Callable[[Identity | None, bool], None],
    ) -> None:
        self._config = config
        self._identity = identity
        self._changed = changed
        self._cluster = Cluster(replace(client_config, total_timeout=5.0))
        self._member = GroupMember(
            self._cluster,
            config.group_id,
            protocol_type=PROTOCOL_TYPE,
            protocol=PROTOCOL,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.rebalance_timeout_ms,
            timeout=0.0,
        )
        self._leads = False
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

    def is_current(self) -> bool:
        """Whether the coordinator was heard within the session timeout; if not, somebody else may lead by
        now."""
        return time.monotonic() - self._member.last_contact < self._config.session_timeout_ms / 1000

    def rejoin(self) -> None:
        """Another instance turned out to lead: ask the group again."""
        self._leads = False
        self._rejoin.set()

    # In the thread

    def _run(self) -> None:
        failing = False
        while not self._stopping.is_set():
            try:
                self._join()
                failing = False
                self._heartbeat_until_rebalance()
            except (KafkaError, OSError, ValueError, KeyError) as error:
                if self._stopping.is_set():
                    break
                if isinstance(error, KafkaError) and self._member.must_rejoin(error):
                    if not self._member.member_id:
                        self._set_leader(None)
                    continue
                if not failing:
                    log.warning("the group %s cannot be reached: %s", self._config.group_id, error)
                    failing = True
                if isinstance(error, Unreachable):
                    self._cluster.close()
                if not self.is_current():
                    self._set_leader(None)
                self._stopping.wait(RETRY_SECONDS)
        try:
            self._member.leave(within=LEAVE_SECONDS)
        except (KafkaError, OSError):
            pass  # the session ends by itself

    def _join(self) -> None:
        self._rejoin.clear()
        identity = json.dumps(self._identity.to_json(self._leads)).encode()
        assignment = json.loads(self._member.join(identity, _assign) or b"{}")
        if assignment.get("error"):
            log.error(
                "two registries of group %s have the same address; set host.name", self._config.group_id
            )
        leader = assignment.get("master_identity")
        if leader is None:
            self._set_leader(None)
        else:
            self._set_leader(Identity.from_json(leader), assignment.get("master") == self._member.member_id)

    def _heartbeat_until_rebalance(self) -> None:
        while not self._rejoin.wait(self._config.heartbeat_interval_ms / 1000):
            self._member.heartbeat()

    def _set_leader(self, leader: Identity | None, is_this_instance: bool = False) -> None:
        self._leads = is_this_instance
        self._changed(leader, is_this_instance)


def _assign(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """The same assignment for all members: who leads."""
    identities = {member_id: json.loads(metadata) for member_id, metadata in members.items()}
    urls = {Identity.from_json(identity).url for identity in identities.values()}
    assignment: dict[str, Any] = {"version": 1, "error": 0 if len(urls) == len(identities) else 1}
    chosen = choose(identities)
    if chosen is not None:
        assignment["master"], assignment["master_identity"] = chosen
    return dict.fromkeys(identities, json.dumps(assignment).encode())
