"""Documents in OpenSearch or Elasticsearch, by their bulk API.

A document has the key as its id and the offset as its version, so that a repetition changes nothing and an
old record never takes the place of a newer one. Without keys the id is topic, partition
and offset. Records wait for others up to `linger.ms`; offsets are committed behind what the server has taken.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from millstream.connect.api import Settings, SinkConnector, SinkContext, SinkTask
from millstream.connect.config.config_def import ConfigDef, ConfigValue
from millstream.connect.connectors.http.client import HttpClient, Refused, Retries, basic
from millstream.connect.connectors.search.documents import document, document_id, document_text, mapping
from millstream.connect.connectors.search.sink_config import CONFIG, SYNONYMS, pairs
from millstream.connect.connectors.storage.sink_config import with_synonyms
from millstream.connect.data.record import SinkRecord
from millstream.connect.errors import ConnectError, DataError, RetriableError
from millstream.wire.topic_partition import TopicPartition

log = logging.getLogger("millstream.connect")

_BUSY = frozenset({429, 502, 503, 504})
_NDJSON = {"Content-Type": "application/x-ndjson"}
_JSON = {"Content-Type": "application/json"}
_RETRY_ON_CONFLICT = 5
_MALFORMED = "behavior.on.malformed.documents"


class SearchSinkTask(SinkTask):
    def __init__(self) -> None:
        self._client: HttpClient | None = None
        self._waiting: list[SinkRecord] = []
        self._failed = False
        self._indices: set[str] = set()

    def start(self, settings: Settings, context: SinkContext) -> None:
        self._set = CONFIG.parse(with_synonyms(settings, SYNONYMS))
        self._context = context
        self._urls = [url.rstrip("/") for url in self._set["connection.url"]]
        self._named = pairs(self._set["topic.index.map"])
        self._upserts = self._set["write.method"].lower() == "upsert"
        self._stream: str = self._set["data.stream.type"].lower()
        self._busy = Retries(self._set["max.retries"], self._set["retry.backoff.ms"])
        self._client = HttpClient(
            headers={},
            retries=Retries(self._set["max.retries"], self._set["retry.backoff.ms"]),
            timeout=self._set["read.timeout.ms"] / 1000,
            connect_timeout=self._set["connection.timeout.ms"] / 1000,
        )
        if self._set["connection.username"]:
            password = self._set["connection.password"]
            self._client.authorization = basic(
                self._set["connection.username"], password.value if password else ""
            )

    # --- records --------------------------------------------------------------------------------------------

    def put(self, records: Sequence[SinkRecord]) -> None:
        """What waits is sent first if it failed the last time, or its time has come: these records are taken
        only after that."""
        now = time.monotonic()
        if self._failed or (self.due is not None and now >= self.due):
            self._send_all()
        self._waiting += records
        if len(self._waiting) >= self._set["batch.size"]:
            try:
                self._send_all()
            except RetriableError as error:
                # The records are taken, and must not come again: the next put begins with this failure.
                log.warning("%s; tried again soon", error)
                self.due = now + (error.delay or 1.0)
        elif self._waiting and self.due is None:
            self.due = now + self._set["linger.ms"] / 1000

    def preview(self, records: Sequence[SinkRecord], settings: Settings) -> list[str]:
        """The lines of the bulk request. Whether there is such an index is not asked."""
        said: list[str] = []
        self.start(
            settings, SinkContext(lambda record, error: said.append(f"refuse {record.offset}: {error}"))
        )
        self._indices |= {self._index(record) for record in records}
        for record in records:
            try:
                said.append(" ".join(line.decode() for line in self._operation(record)))
            except DataError as error:
                self._context.report(record, error)
        return [line for line in said if line]

    def flush(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, str]:
        self._send_all()
        return {}

    def _send_all(self) -> None:
        self._failed = True
        while self._waiting:
            size = self._set["batch.size"]
            rest = self._send(self._waiting[:size])
            self._waiting = rest + self._waiting[size:]
            if rest:
                raise self._busy.again(f"the server is busy: {len(rest)} documents wait")
            self._busy.failed = 0
        self._failed, self.due = False, None

    def _send(self, records: list[SinkRecord]) -> list[SinkRecord]:
        """Those that the server wants later. What is wrong with the others is said when it has answered: the
        whole request may come again."""
        lines: list[bytes] = []
        sent: list[SinkRecord] = []
        malformed: list[tuple[SinkRecord, DataError, str]] = []
        for record in records:
            try:
                operation = self._operation(record)
            except DataError as error:
                setting = "behavior.on.null.values" if record.value is None else _MALFORMED
                malformed.append((record, error, setting))
                continue
            if operation:
                lines += operation
                sent.append(record)
        items: list[dict[str, Any]] = []
        if sent:
            try:
                items = self._bulk(lines)
            except Refused as error:
                if error.status != 413 or len(records) == 1:
                    raise ConnectError(f"bulk request: {error}") from None
                half = len(records) // 2
                return self._send(records[:half]) + self._send(records[half:])
        for one in malformed:
            self._refuse(*one)
        busy = []
        for record, item in zip(sent, items, strict=True):
            if item.get("status", 200) in _BUSY:
                busy.append(record)
            elif item.get("status", 200) >= 400:
                self._judge(record, item)
        return busy

    def _bulk(self, lines: list[bytes]) -> list[dict[str, Any]]:
        answer = self._request("POST", "/_bulk", b"\n".join(lines) + b"\n", _NDJSON)
        try:
            return [next(iter(item.values())) for item in json.loads(answer.content)["items"]]
        except (ValueError, KeyError, AttributeError, StopIteration):
            raise ConnectError("the server's answer to a bulk request is none") from None

    def _judge(self, record: SinkRecord, item: Mapping[str, Any]) -> None:
        if item["status"] == 409:
            setting = "behavior.on.version.conflict"
        elif item["status"] == 404 and record.value is None:
            return  # it is deleted already
        else:
            setting = _MALFORMED
        error = item.get("error") or {}
        reason = error.get("reason", "") if isinstance(error, dict) else str(error)
        kind = error.get("type", "error") if isinstance(error, dict) else "error"
        self._refuse(record, DataError(f"{item.get('_index')}: {kind}: {reason}"), setting)

    def _refuse(self, record: SinkRecord, error: DataError, setting: str) -> None:
        what = self._set[setting].lower()
        if what == "warn":
            log.warning("%s-%s@%s is left out: %s", record.topic, record.partition, record.offset, error)
        elif what in ("fail", "report"):
            self._context.report(record, error)

    # --- operations -----------------------------------------------------------------------------------------

    def _operation(self, record: SinkRecord) -> list[bytes]:
        """Lines of the bulk request; none for a record that is left out."""
        ignore_key = self._set["key.ignore"] or record.topic in self._set["topic.key.ignore"]
        where: dict[str, Any] = {"_index": self._index(record)}
        if not (ignore_key and self._set["key.ignore.id.strategy"].lower() == "none"):
            where["_id"] = document_id(record, ignore_key=ignore_key)
        if record.value is None:
            return self._deletion(record, where, ignore_key)
        found = document(record, compact_maps=self._set["compact.map.entries"])
        if self._stream != "none":
            self._add_timestamp(record, found)
            return [document_text({"create": where}), document_text(found)]
        self._make_sure_of(where["_index"], record)
        if self._upserts and not ignore_key:
            where["retry_on_conflict"] = _RETRY_ON_CONFLICT
            body = document_text({"doc": found, "doc_as_upsert": True})
            return [document_text({"update": where}), body]
        if not ignore_key:
            where |= _version(record)
        return [document_text({"index": where}), document_text(found)]

    def _deletion(self, record: SinkRecord, where: dict[str, Any], ignore_key: bool) -> list[bytes]:
        behavior = self._set["behavior.on.null.values"].lower()
        if behavior == "fail":
            raise DataError("a record without a value is no document")
        if behavior != "delete" or ignore_key or self._stream != "none":
            return []
        return [document_text({"delete": where | ({} if self._upserts else _version(record))})]

    def _index(self, record: SinkRecord) -> str:
        if self._stream != "none":
            space = self._set["data.stream.namespace"].replace("${topic}", record.topic)
            parts = (self._stream, self._set["data.stream.dataset"], space)
            return "-".join(part for part in parts if part).lower()
        return self._named.get(record.topic, record.topic.lower())

    def _add_timestamp(self, record: SinkRecord, found: dict[str, Any]) -> None:
        if "@timestamp" not in found:
            named = (found.get(name) for name in self._set["data.stream.timestamp.field"])
            found["@timestamp"] = next((value for value in named if value is not None), record.timestamp)

    # --- indices --------------------------------------------------------------------------------------------

    def _make_sure_of(self, index: str, record: SinkRecord) -> None:
        """An index exists, with the types of the first schema that is seen."""
        if index in self._indices:
            return
        try:
            self._request("HEAD", f"/{index}", b"", {})
        except Refused as missing:
            if missing.status != 404:
                raise ConnectError(f"index {index}: {missing}") from None
            self._create(index, record)
        self._indices.add(index)

    def _create(self, index: str, record: SinkRecord) -> None:
        body: dict[str, Any] = {}
        ignored = self._set["schema.ignore"] or record.topic in self._set["topic.schema.ignore"]
        if record.value_schema is not None and not ignored:
            found = mapping(record.value_schema, compact_maps=self._set["compact.map.entries"])
            body = {"mappings": found} if found else {}
        try:
            self._request("PUT", f"/{index}", document_text(body), _JSON)
        except Refused as error:
            if "resource_already_exists" not in str(error):
                raise ConnectError(f"index {index} cannot be created: {error}") from None

    def _request(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Any:
        """To the first server; where it is away, the next one is the first."""
        assert self._client is not None
        try:
            return self._client.send(method, self._urls[0] + path, body, headers)
        except RetriableError:
            self._urls.append(self._urls.pop(0))
            raise

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()


def _version(record: SinkRecord) -> dict[str, Any]:
    offset = record.offset if record.original_offset is None else record.original_offset
    return {"version": offset, "version_type": "external"}


class SearchSink(SinkConnector):
    task = SearchSinkTask
    config: ClassVar[ConfigDef] = CONFIG

    @classmethod
    def validate(cls, settings: Settings) -> dict[str, ConfigValue]:
        return CONFIG.validate(with_synonyms(settings, SYNONYMS))
