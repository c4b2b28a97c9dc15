"""Records as HTTP requests, one by one or in batches; Aiven's settings, or Confluent's.

Every request has a header `Idempotency-Key`, topic-partition-offset of its first record: a server
that remembers it sees each record once. What was answered is not sent again when a later request of the same
put fails. A request that the server refuses (4xx) takes its records to the dead letters; a server that is
away or overloaded is asked again, with pauses that double.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote

from millstream.connect.api import Settings, SinkConnector, SinkContext, SinkTask
from millstream.connect.config.config_def import ConfigDef, ConfigError
from millstream.connect.connectors.http import sink_config as config
from millstream.connect.connectors.http.client import HttpClient, Refused
from millstream.connect.converters.json import JsonConverter
from millstream.connect.data.java_names import to_string
from millstream.connect.data.record import SinkRecord
from millstream.connect.errors import ConnectError, DataError
from millstream.wire.topic_partition import TopicPartition


@dataclass(slots=True)
class Plan:
    """What the settings come to. `null` is what becomes of a record without a value: fail, ignore or delete;
    `refused` what becomes of one that the server does not want: fail or ignore."""

    url: str
    method: str
    batch_size: int
    prefix: str
    separator: str
    suffix: str
    null: str = "fail"
    refused: str = "fail"
    content_type: str | None = None


class HttpSinkTask(SinkTask):
    @abstractmethod
    def plan(self, settings: Settings) -> tuple[Plan, HttpClient]: ...

    def __init__(self) -> None:
        self._client: HttpClient | None = None
        self._json = JsonConverter({"schemas.enable": "false"})
        self._sent: dict[TopicPartition, int] = {}

    def start(self, settings: Settings, context: SinkContext) -> None:
        self._plan, self._client = self.plan(settings)
        self._context = context

    def put(self, records: Sequence[SinkRecord]) -> None:
        for batch in self._batches(records):
            self._send(batch)

    def preview(self, records: Sequence[SinkRecord], settings: Settings) -> list[str]:
        said: list[str] = []
        self.start(
            settings, SinkContext(lambda record, error: said.append(f"refuse {record.offset}: {error}"))
        )
        for batch in self._batches(records):
            deletes = batch[0].value is None
            body = b"" if deletes else self._body(batch)
            shown = body.decode("utf-8", "backslashreplace")
            said.append(
                f"{'DELETE' if deletes else self._plan.method} {self._url(batch[0])} {shown}".rstrip()
            )
        return said

    def _batches(self, records: Sequence[SinkRecord]) -> Iterator[list[SinkRecord]]:
        """Of one URL each, in order; a deletion goes alone."""
        batch: list[SinkRecord] = []
        for record in records:
            if self._offset(record) < self._sent.get(_which(record), 0):
                continue  # it was answered in a put that failed later
            if record.value is None and self._plan.null != "delete":
                if self._plan.null == "fail":
                    self._context.report(record, DataError("a record without a value cannot be sent"))
                continue
            alone = record.value is None or (batch and batch[0].value is None)
            if batch and (
                alone or len(batch) >= self._plan.batch_size or self._url(record) != self._url(batch[0])
            ):
                yield batch
                batch = []
            batch.append(record)
        if batch:
            yield batch

    def _send(self, batch: list[SinkRecord]) -> None:
        assert self._client is not None
        plan, first = self._plan, batch[0]
        deletes = first.value is None
        headers = {"Idempotency-Key": f"{_which(first)}-{self._offset(first)}"}
        if plan.content_type:
            headers["Content-Type"] = plan.content_type
        try:
            self._client.send(
                "DELETE" if deletes else plan.method,
                self._url(first),
                b"" if deletes else self._body(batch),
                headers,
            )
        except Refused as error:
            if len(batch) > 1 and error.status in (400, 413, 422):
                for record in batch:  # one of them is the reason: which?
                    self._send([record])
                return
            if plan.refused == "fail":
                for record in batch:
                    self._context.report(record, error)
        for record in batch:
            self._sent[_which(record)] = self._offset(record) + 1

    def _body(self, batch: list[SinkRecord]) -> bytes:
        plan = self._plan
        bodies = [self._content(record) for record in batch]
        if plan.batch_size == 1:
            return bodies[0]
        return plan.prefix.encode() + plan.separator.encode().join(bodies) + plan.suffix.encode()

    def _content(self, record: SinkRecord) -> bytes:
        if isinstance(record.value, bytes):
            return record.value
        if isinstance(record.value, str):
            return record.value.encode()
        return self._json.from_connect(record.topic, record.value_schema, record.value) or b"null"

    def _url(self, record: SinkRecord) -> str:
        """`${topic}` and `${key}` may stand in it."""
        url = self._plan.url
        if "${" not in url:
            return url
        key = "" if record.key is None else to_string(record.key, record.key_schema)
        return url.replace("${topic}", quote(record.topic, safe="")).replace("${key}", quote(key, safe=""))

    @staticmethod
    def _offset(record: SinkRecord) -> int:
        return record.offset if record.original_offset is None else record.original_offset

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()


def _which(record: SinkRecord) -> TopicPartition:
    return TopicPartition(record.original_topic or record.topic, record.original_partition or 0)


# --- Aiven's ------------------------------------------------------------------------------------------------


class AivenHttpTask(HttpSinkTask):
    def plan(self, settings: Settings) -> tuple[Plan, HttpClient]:
        parsed = config.AIVEN.parse(settings)
        plan = Plan(
            parsed["http.url"],
            "POST",
            parsed["batch.max.size"] if parsed["batching.enabled"] else 1,
            parsed["batch.prefix"],
            parsed["batch.separator"],
            parsed["batch.suffix"],
            content_type=parsed["http.headers.content.type"],
        )
        return plan, config.aiven_client(parsed)


class AivenHttpSink(SinkConnector):
    task = AivenHttpTask
    config: ClassVar[ConfigDef] = config.AIVEN

    def start(self) -> None:
        _checked(lambda: config.aiven_client(config.AIVEN.parse(self.settings)))


# --- Confluent's --------------------------------------------------------------------------------------------


class ConfluentHttpTask(HttpSinkTask):
    def plan(self, settings: Settings) -> tuple[Plan, HttpClient]:
        parsed = config.CONFLUENT.parse(settings)
        plan = Plan(
            parsed["http.api.url"],
            parsed["request.method"].upper(),
            parsed["batch.max.size"],
            parsed["batch.prefix"],
            parsed["batch.separator"],
            parsed["batch.suffix"],
            null=parsed["behavior.on.null.values"],
            refused="fail" if parsed["behavior.on.error"] == "fail" else "ignore",
        )
        return plan, config.confluent_client(parsed)


class ConfluentHttpSink(SinkConnector):
    task = ConfluentHttpTask
    config: ClassVar[ConfigDef] = config.CONFLUENT

    def start(self) -> None:
        _checked(lambda: config.confluent_client(config.CONFLUENT.parse(self.settings)))


def _checked(make: Callable[[], Any]) -> None:
    try:
        make().close()
    except ConfigError as error:
        raise ConnectError(str(error)) from None
