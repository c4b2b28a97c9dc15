"""Who leads a partition that this broker does not: for answers that send a client to the right one.

Produce and Fetch name the new leader in tagged fields, with its address on the listener that the client came
in by (KIP-951), so that the client needs no Metadata request in between.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from millstream.wire.varint import uvarint

if TYPE_CHECKING:
    from millstream.cluster.image import Image

_INT32 = struct.Struct(">i")

Leader = tuple[int, int]  # id, epoch


class Leaders:
    def __init__(self, image: Callable[[], Image]) -> None:
        self._image = image

    def find(self, topic: bytes, index: int, by_id: bool) -> Leader | None:
        """The leader of a partition, as the metadata know it; None if there is no such partition. The topic
        is given by the bytes of a request: its name, or its id."""
        image = self._image()
        if by_id:
            topic_id: UUID | None = UUID(bytes=topic)
        else:
            known = image.topic(topic.decode("utf-8", "replace"))
            topic_id = None if known is None else known.topic_id
        partition = None if topic_id is None else image.partition(topic_id, index)
        return None if partition is None else (partition.leader, partition.leader_epoch)

    def endpoints(self, listener: str, leaders: Iterable[Leader]) -> bytes:
        """The tag section of a response with the addresses of these leaders (NodeEndpoints); empty if there
        is none to name."""
        brokers = self._image().brokers
        nodes = []
        for leader_id in sorted({leader[0] for leader in leaders}):
            broker = brokers.get(leader_id)
            endpoint = None if broker is None else broker.endpoint(listener)
            if broker is not None and endpoint is not None:
                rack = b"\0" if broker.rack is None else _text(broker.rack)
                nodes.append(
                    _INT32.pack(leader_id) + _text(endpoint.host) + _INT32.pack(endpoint.port) + rack + b"\0"
                )
        if not nodes:
            return b""
        field = uvarint(len(nodes) + 1) + b"".join(nodes)
        return b"\x01\0" + uvarint(len(field)) + field  # one tag, number 0


def _text(text: str) -> bytes:
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw
