"""A transaction that holds records and the offsets they were made from: both are there or neither is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.client.cluster import Cluster
from millstream.client.connection import Connection
from millstream.client.errors import check
from millstream.client.groups import Coordinators, places_by_topic
from millstream.client.producer import Place
from millstream.client.transactional import TransactionalProducer

_GROUP = 0
_ADD_OFFSETS, _COMMIT_OFFSETS = 3, 3


class OffsetsTransaction(TransactionalProducer):
    def __init__(self, cluster: Cluster, transactional_id: str, group: str) -> None:
        super().__init__(cluster, transactional_id, create_topics=False)
        self._group = group
        self._groups = Coordinators(cluster, _GROUP)

    def commit_offsets(self, offsets: Mapping[Place, int]) -> None:
        """Makes the group's offsets part of the transaction."""

        def announce(connection: Connection) -> None:
            answer = connection.request(
                "add_offsets_to_txn",
                up_to=_ADD_OFFSETS,
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                group_id=self._group,
            )
            check(answer.error_code, subject=f"group {self._group} in {self.transactional_id}")

        self._patiently(announce)
        topics: list[dict[str, Any]] = [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": number,
                        "committed_offset": offsets[name, number],
                        "committed_leader_epoch": -1,
                        "committed_metadata": "",
                    }
                    for number in numbers
                ],
            }
            for name, numbers in places_by_topic(offsets).items()
        ]

        def commit(connection: Connection) -> None:
            answer = connection.request(
                "txn_offset_commit",
                up_to=_COMMIT_OFFSETS,
                transactional_id=self.transactional_id,
                group_id=self._group,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                topics=topics,
            )
            for topic in answer.topics:
                for part in topic.partitions:
                    check(part.error_code, subject=f"offset of {topic.name}-{part.partition_index}")

        self._groups.ask(self._group, commit)
