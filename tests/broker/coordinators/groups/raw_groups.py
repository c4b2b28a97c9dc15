"""The group APIs spoken in raw frames, in any version."""

import threading
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from ...raw_frames import WAIT, Raw

SUBSCRIPTION = (
    b"\0\1\0\0\0\1\0\2t1\xff\xff\xff\xff\0\0\0\0"  # version 1, one topic "t1", no user data, owns nothing
)
RANGE = (("range", SUBSCRIPTION),)


class Groups(Raw):
    """One connection to a coordinator."""

    def find(self, *keys: str, kind: int = 0, version: int = 4) -> Any:
        if version >= 4:
            return self.ask("find_coordinator", version, key_type=kind, coordinator_keys=list(keys))
        return self.ask("find_coordinator", version, key=keys[0], key_type=kind)

    def join(
        self,
        group: str,
        member: str = "",
        *,
        version: int = 9,
        instance: str | None = None,
        kind: str = "consumer",
        protocols: Iterable[tuple[str, bytes]] = RANGE,
        session: int = 10_000,
        rebalance: int = 5000,
    ) -> Any:
        return self.ask(
            "join_group",
            version,
            group_id=group,
            session_timeout=session,
            rebalance_timeout=rebalance,
            member_id=member,
            group_instance_id=instance,
            protocol_type=kind,
            protocols=[{"name": each, "metadata": data} for each, data in protocols],
            reason=None,
        )

    def enter(self, group: str, **options: Any) -> Any:
        """Fetch an id and join with it."""
        return self.join(group, self.join(group, **options).member_id, **options)

    def sync(
        self,
        group: str,
        member: str,
        generation: int,
        parts: dict[str, bytes] | None = None,
        *,
        version: int = 5,
        instance: str | None = None,
        kind: str | None = "consumer",
        protocol: str | None = "range",
    ) -> Any:
        return self.ask(
            "sync_group",
            version,
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            protocol_type=kind,
            protocol_name=protocol,
            assignments=[{"member_id": each, "assignment": data} for each, data in (parts or {}).items()],
        )

    def heartbeat(
        self, group: str, member: str, generation: int, instance: str | None = None, version: int = 4
    ) -> int:
        answer = self.ask(
            "heartbeat",
            version,
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
        )
        return int(answer.error_code)

    def leave(self, group: str, *members: tuple[str, str | None], version: int = 5) -> Any:
        if version < 3:
            return self.ask("leave_group", version, group_id=group, member_id=members[0][0])
        named = [{"member_id": m, "group_instance_id": i, "reason": None} for m, i in members]
        return self.ask("leave_group", version, group_id=group, members=named)

    def commit(
        self,
        group: str,
        offsets: dict[Any, Any],
        member: str = "",
        generation: int = -1,
        instance: str | None = None,
        version: int = 9,
        retention: int = -1,
    ) -> dict[Any, dict[int, int]]:
        """Topics are names, or ids for version 10. Gives the error codes."""
        topics = []
        for topic, partitions in offsets.items():
            asked = []
            for index, given in partitions.items():
                offset, metadata = given if isinstance(given, tuple) else (given, "")
                asked.append(
                    {
                        "partition_index": index,
                        "committed_offset": offset,
                        "committed_leader_epoch": -1,
                        "committed_metadata": metadata,
                    }
                )
            topics.append({"name": topic, "topic_id": topic, "partitions": asked})
        answer = self.ask(
            "offset_commit",
            version,
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            group_instance_id=instance,
            retention_time=retention,
            topics=topics,
        )
        return {
            getattr(topic, "name", None) or topic.topic_id: {
                each.partition_index: int(each.error_code) for each in topic.partitions
            }
            for topic in answer.topics
        }

    def fetch_answer(
        self,
        group: str,
        topics: dict[Any, list[int]] | None = None,
        *,
        version: int = 9,
        stable: bool = False,
        member: str | None = None,
        epoch: int = -1,
    ) -> Any:
        asked = None
        if topics is not None:
            asked = [{"name": t, "topic_id": t, "partition_indexes": p} for t, p in topics.items()]
        if version >= 8:
            one = {"group_id": group, "member_id": member, "member_epoch": epoch, "topics": asked}
            return self.ask("offset_fetch", version, groups=[one], require_stable=stable)
        return self.ask("offset_fetch", version, group_id=group, topics=asked, require_stable=stable)

    def fetch(self, group: str, topics: dict[Any, list[int]] | None = None, **options: Any) -> dict[Any, Any]:
        """{topic: {partition: offset}}; an error code takes an offset's place as text."""
        answer = self.fetch_answer(group, topics, **options)
        found = answer.groups[0] if options.get("version", 9) >= 8 else answer
        return {
            getattr(topic, "name", None) or topic.topic_id: {
                each.partition_index: each.committed_offset
                if each.error_code == 0
                else f"error {int(each.error_code)}"
                for each in topic.partitions
            }
            for topic in found.topics
        }

    def delete_offsets(self, group: str, topics: dict[str, list[int]]) -> Any:
        return self.ask(
            "offset_delete",
            0,
            group_id=group,
            topics=[
                {"name": topic, "partitions": [{"partition_index": index} for index in indexes]}
                for topic, indexes in topics.items()
            ],
        )

    def describe(self, group: str, version: int = 6) -> Any:
        answer = self.ask(
            "describe_groups", version, groups=[group], include_authorized_operations=version >= 3
        )
        return answer.groups[0]

    def list(
        self, *, version: int = 5, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> dict[str, Any]:
        answer = self.ask("list_groups", version, states_filter=list(states), types_filter=list(types))
        assert answer.error_code == 0
        return {each.group_id: each for each in answer.groups}

    def delete(self, *groups: str, version: int = 2) -> dict[str, int]:
        answer = self.ask("delete_groups", version, groups_names=list(groups))
        return {each.group_id: int(each.error_code) for each in answer.results}

    def topic_id(self, topic: str) -> UUID:
        answer = self.ask(
            "metadata",
            12,
            topics=[{"name": topic, "topic_id": None}],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        found = answer.topics[0].topic_id
        assert isinstance(found, UUID)
        return found


class Later:
    """A request that waits for others, sent from a thread."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._result: list[Any] = []
        self._thread = threading.Thread(target=lambda: self._result.append(ask()), daemon=True)
        self._thread.start()

    def waits(self, seconds: float = 0.15) -> bool:
        self._thread.join(seconds)
        return self._thread.is_alive()

    def get(self) -> Any:
        self._thread.join(WAIT)
        assert self._result, "no answer came"
        return self._result[0]
