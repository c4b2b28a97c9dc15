"""A connection in replication mode: the log's messages as they come, and how far they are done with."""

from __future__ import annotations

import struct
import time
from typing import Any, NamedTuple

import psycopg
from psycopg.pq import ExecStatus

from millstream.connect.errors import ConnectError, RetriableError

_XLOG = struct.Struct("!QQQ")
_KEEPALIVE = struct.Struct("!QQB")
_STATUS = struct.Struct("!cQQQQB")
_SECONDS_TO_2000 = 946_684_800
STATUS_SECONDS = 10.0


class Slot(NamedTuple):
    """`snapshot` can be read with until the connection is used for something else."""

    position: int
    snapshot: str


def lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


class Replication:
    def __init__(self, parameters: dict[str, Any]) -> None:
        # Values come in the words of this session.
        options = f"{parameters.get('options', '')} -c datestyle=ISO -c bytea_output=hex".strip()
        self._connection = psycopg.connect(
            **(parameters | {"options": options}), replication="database", autocommit=True
        )
        self._pq = self._connection.pgconn
        self._done = 0
        self._status_sent_at = 0.0
        self.seen = 0
        """Up to where the server has sent everything that there was."""

    def create_slot(self, name: str) -> Slot:
        result = self._pq.exec_(f'CREATE_REPLICATION_SLOT "{name}" LOGICAL pgoutput EXPORT_SNAPSHOT'.encode())
        if result.status != ExecStatus.TUPLES_OK:
            raise _refusal(result.error_message)
        row = [result.get_value(0, column) or b"" for column in range(4)]
        return Slot(lsn_number(row[1].decode()), row[2].decode())

    def start(self, slot: str, publication: str) -> None:
        """From where the slot was confirmed."""
        quoted = publication.replace("'", "''")
        options = f"proto_version '1', publication_names '\"{quoted}\"'"
        result = self._pq.exec_(f'START_REPLICATION SLOT "{slot}" LOGICAL 0/0 ({options})'.encode())
        if result.status != ExecStatus.COPY_BOTH:
            raise _refusal(result.error_message)

    def next(self) -> tuple[int, bytes] | None:
        """A message and its LSN; None while there is none."""
        while True:
            length, data = self._pq.get_copy_data(1)
            if length == 0:
                self._pq.consume_input()
                length, data = self._pq.get_copy_data(1)
            if length == 0:
                if time.monotonic() - self._status_sent_at > STATUS_SECONDS:
                    self.confirm(self._done)
                return None
            if length < 0:
                raise psycopg.OperationalError("the server has ended the replication")
            body = bytes(data)
            if body[:1] == b"w":
                start, end, _ = _XLOG.unpack_from(body, 1)
                self.seen = max(self.seen, end)
                return start, body[25:]
            if body[:1] == b"k":
                end, _, reply = _KEEPALIVE.unpack_from(body, 1)
                self.seen = max(self.seen, end)
                if reply:
                    self.confirm(self._done)

    def confirm(self, lsn: int) -> None:
        """Everything before `lsn` will not be asked for again."""
        self._done = max(self._done, lsn)
        self._status_sent_at = time.monotonic()
        now = int((time.time() - _SECONDS_TO_2000) * 1_000_000)
        self._pq.put_copy_data(_STATUS.pack(b"r", self._done, self._done, self._done, now, 0))
        self._pq.flush()

    def close(self) -> None:
        self._connection.close()


def _refusal(message: bytes) -> ConnectError:
    text = message.decode(errors="replace").strip().split("\n")[0]
    return RetriableError(text) if "is active for PID" in text else ConnectError(text)
