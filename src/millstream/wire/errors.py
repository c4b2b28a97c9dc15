"""Kafka's error codes, and the exception that carries one to whoever answers the client."""

from millstream.wire._kio_imports import without_hypothesis

with without_hypothesis():
    from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode", "KafkaError", "RecordsRefused"]


class KafkaError(Exception):
    """A request (or one part of it) fails with this Kafka error code; the message is for people."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(code, message)  # both, so that it can be pickled
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return self.message or self.code.name


class RecordsRefused(KafkaError):
    """A batch is refused because of some of its records: `records` are their indexes in it, and what is wrong
    with each."""

    def __init__(self, code: ErrorCode, message: str, records: tuple[tuple[int, str], ...]) -> None:
        super().__init__(code, message)
        self.args = (code, message, records)
        self.records = records
