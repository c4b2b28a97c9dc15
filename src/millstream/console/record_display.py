"""Keys and values as people can read them.

Bytes with a schema's id in front are decoded by the registry. JSON is laid out, text is text, anything else
is a hex dump. What is long is cut. Where masking rules apply, everything that leaves here has gone through
them.
"""

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from millstream.console.masking import FieldRule, Masks, TopicMasks, parse_json
from millstream.serdes import (
    Decoder,
    RegistryRefused,
    RegistryUnreachable,
    SchemaRegistry,
    SerdeError,
    to_json,
)
from millstream.serdes.frame import NotFramed, split
from millstream.wire.records import Record

PREVIEW = 220
HEX_BYTES = 2048
LARGEST_DECODED = 8 << 20  # more is shown as its bytes
REST = 5.0  # seconds for which a registry that did not answer is left alone

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """One key or value. `form` says how it was read: null, json, text, hex, or the schema's language."""

    form: str
    text: str
    preview: str
    size: int
    cut: bool = False
    masked: bool = False
    schema_id: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One record, ready to be drawn."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Shown
    value: Shown
    headers: list[tuple[str, str]]
    masked: bool

    @property
    def when(self) -> str:
        return when(self.timestamp)

    def plain(self) -> dict[str, Any]:
        """For export."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": self.when,
            "key": None if self.key.form == "null" else self.key.text,
            "value": _exported(self.value),
            "headers": [{"name": name, "value": value} for name, value in self.headers],
        }


class Shower:
    """Decodes and masks. For any number of threads."""

    def __init__(self, registry: SchemaRegistry | None, masks: Masks, longest: int) -> None:
        self._decoder = Decoder(registry) if registry is not None else None
        self._masks = masks
        self._longest = longest
        self._down_until = 0.0
        self._down = ""

    def masks(self, topic: str, unmasked: bool = False) -> TopicMasks:
        return TopicMasks() if unmasked else self._masks.of(topic)

    def message(self, topic: str, partition: int, record: Record, masks: TopicMasks) -> Message:
        headers = tuple(record.headers)
        shown = []
        covered = False
        for name, content in headers:
            stand_in = masks.header(name, content) if masks.headers else None
            covered |= stand_in is not None
            shown.append((_printable(name), stand_in if stand_in is not None else _header_text(content)))
        key = self.shown(record.key, headers, masks, masks.key, is_key=True)
        value = self.shown(record.value, headers, masks, masks.value)
        masked = key.masked or value.masked or covered
        return Message(topic, partition, record.offset, record.timestamp, key, value, shown, masked)

    def shown(
        self,
        data: bytes | None,
        headers: Headers,
        masks: TopicMasks,
        rules: list[FieldRule],
        is_key: bool = False,
    ) -> Shown:
        if data is None:
            return Shown("null", "", "null", 0)
        form, schema_id, found, note = self.decoded(data, headers, is_key)
        if form in ("text", "hex"):
            stand_in = masks.opaque(rules, data)
            if stand_in is not None:
                return Shown(
                    "masked", stand_in, stand_in, len(data), masked=True, schema_id=schema_id, note=note
                )
            return self._plain(data, form, schema_id, note)
        if rules:
            found = masks.structured(rules, found)
        text = json.dumps(json.loads(to_json(found)), ensure_ascii=False, indent=2)
        preview = text if len(text) < 40 else to_json(found)
        cut = len(text) > self._longest
        return Shown(
            form,
            _printable(text[: self._longest]),
            one_line(preview),
            len(data),
            cut,
            bool(rules),
            schema_id,
            note,
        )

    def decoded(self, data: bytes, headers: Headers, is_key: bool = False) -> tuple[str, str, Any, str]:
        """Form, schema id, the object (for form json and the schema languages), and what went wrong."""
        note, schema_id = "", ""
        if self._decoder is not None and len(data) <= LARGEST_DECODED and self._framed(data, headers, is_key):
            schema_id = _schema_id(data)
            try:
                if time.monotonic() < self._down_until:
                    raise RegistryUnreachable(self._down)
                result = self._decoder.decode_with_schema(data, headers, key=is_key)
                if result is not None:
                    named = str(result.schema.id) if result.schema.id >= 0 else schema_id
                    return result.schema.type.lower(), named, result.value, ""
            except RegistryUnreachable as error:
                if time.monotonic() >= self._down_until:
                    self._down_until, self._down = time.monotonic() + REST, str(error)
                note = f"Not decoded: {error}"
            except (RegistryRefused, SerdeError) as error:
                note = f"Not decoded: {error}"
        if len(data) <= LARGEST_DECODED:
            try:
                return "json", schema_id, parse_json(data), note
            except (ValueError, RecursionError):
                pass
        return ("text" if _is_text(data) else "hex"), schema_id, None, note

    def _framed(self, data: bytes, headers: Headers, is_key: bool) -> bool:
        wanted = "__key_schema_id" if is_key else "__value_schema_id"
        return (len(data) >= 5 and data[0] == 0) or any(name == wanted for name, _ in headers)

    def _plain(self, data: bytes, form: str, schema_id: str, note: str) -> Shown:
        if form == "text":
            cut = len(data) > self._longest
            text = _printable(data[: self._longest].decode("utf-8", "ignore" if cut else "replace"))
            return Shown("text", text, one_line(text[: PREVIEW * 2]), len(data), cut, False, schema_id, note)
        room = min(HEX_BYTES, self._longest)
        preview = " ".join(f"{byte:02x}" for byte in data[:24])
        return Shown(
            "hex", hex_dump(data[:room]), preview, len(data), len(data) > room, False, schema_id, note
        )


def _schema_id(data: bytes) -> str:
    try:
        return str(split(data)[0])
    except NotFramed:
        return ""


def _exported(shown: Shown) -> Any:
    if shown.form == "null":
        return None
    if shown.form not in ("text", "hex", "masked") and not shown.cut:
        try:
            return json.loads(shown.text)
        except ValueError:
            pass
    return shown.text


def _is_text(data: bytes) -> bool:
    """Whether bytes read as UTF-8 with few control characters. Only the beginning of what is long is looked
    at."""
    part = data[:65536]
    try:
        text = part.decode()
    except UnicodeDecodeError as error:
        if len(part) == len(data) or error.start < len(part) - 4:
            return False
        text = part[: error.start].decode()
    return not any((c < " " and c not in "\t\r\n") or c == "\x7f" for c in text)


def _printable(text: str) -> str:
    """Control characters and lone halves of characters as visible signs."""
    return "".join(
        c if (c >= " " and c != "\x7f" and not "\ud800" <= c <= "\udfff") or c in "\t\n" else "\ufffd"
        for c in text
    )


def _header_text(value: bytes | None) -> str:
    if value is None:
        return "null"
    if _is_text(value):
        return _printable(value[:4096].decode("utf-8", "replace"))
    return "0x" + value[:512].hex()


def one_line(text: str) -> str:
    flat = " ".join(_printable(text[: PREVIEW * 4]).split())
    return flat if len(flat) <= PREVIEW else flat[: PREVIEW - 1] + "\u2026"


def hex_dump(data: bytes) -> str:
    lines = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        signs = "".join(chr(b) if 32 <= b < 127 else "." for b in row)
        lines.append(f"{at:06x}  {row.hex(' '):<47}  {signs}")
    return "\n".join(lines)


def when(milliseconds: int) -> str:
    """A timestamp in UTC, to the millisecond; -1 means that there is none."""
    if milliseconds < 0:
        return "none"
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{milliseconds % 1000:03d}"
