"""Keys and values as people can read them.

Bytes with a schema's id in front are decoded by the registry. JSON is laid out, with every name, string and
number as it was written; text is text, anything else is a hex dump. What is long is cut. Where masking rules
apply, everything that leaves here has gone through them.
"""

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from millstream.console.masking import FieldRule, Masks, TopicMasks
from millstream.serdes import (
    Decoded,
    Decoder,
    RegistryRefused,
    RegistryUnreachable,
    SchemaRegistry,
    SerdeError,
    to_json,
)
from millstream.serdes.frame import NotFramed, split
from millstream.serdes.json_codecs import TextBody
from millstream.serdes.json_text import check_json, laid_out, one_line
from millstream.wire.records import Record

PREVIEW = 220
MAX_HEX_BYTES = 2048
MAX_DECODED_BYTES = 8 << 20  # more is shown as its bytes
REGISTRY_PAUSE = 5.0  # seconds for which a registry that did not answer is left alone

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class RenderedField:
    """One key or value. `form` says how it was read: null, json, text, hex, or the schema's language. `json`
    is the text in one line, if it is JSON and not cut."""

    form: str
    text: str
    preview: str
    size: int
    cut: bool = False
    masked: bool = False
    schema_id: str = ""
    note: str = ""
    json: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One record, ready to be drawn."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: RenderedField
    value: RenderedField
    headers: list[tuple[str, str]]
    masked: bool

    @property
    def utc_timestamp(self) -> str:
        return utc_timestamp(self.timestamp)

    def export(self) -> str:
        """One line of JSON. A value that is JSON stands in it as it was written."""
        facts = {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": self.utc_timestamp,
            "key": self.exported_key,
        }
        head = json.dumps(facts, ensure_ascii=False)
        value = self.value.json or json.dumps(self.exported_value, ensure_ascii=False)
        headers = [{"name": name, "value": text} for name, text in self.headers]
        return f'{head[:-1]}, "value": {value}, "headers": {json.dumps(headers, ensure_ascii=False)}}}'

    @property
    def exported_key(self) -> str | None:
        return None if self.key.form == "null" else self.key.text

    @property
    def exported_value(self) -> str | None:
        return None if self.value.form == "null" else self.value.json or self.value.text


class RecordRenderer:
    """Decodes and masks. For any number of threads."""

    def __init__(self, registry: SchemaRegistry | None, masks: Masks, max_length: int) -> None:
        self._decoder = Decoder(registry) if registry is not None else None
        self._masks = masks
        self._max_length = max_length
        self._registry_retry_at = 0.0
        self._registry_error = ""

    def masks(self, topic: str, unmasked: bool = False) -> TopicMasks:
        return TopicMasks() if unmasked else self._masks.of(topic)

    def render(self, topic: str, partition: int, record: Record, masks: TopicMasks) -> Message:
        headers = tuple(record.headers)
        render_field = []
        header_masked = False
        for name, content in headers:
            replacement = masks.header(name, content) if masks.headers else None
            header_masked |= replacement is not None
            render_field.append(
                (_printable(name), replacement if replacement is not None else _header_text(content))
            )
        key = self.render_field(record.key, headers, masks, masks.key, is_key=True)
        value = self.render_field(record.value, headers, masks, masks.value)
        masked = key.masked or value.masked or header_masked
        return Message(topic, partition, record.offset, record.timestamp, key, value, render_field, masked)

    def render_field(
        self,
        data: bytes | None,
        headers: Headers,
        masks: TopicMasks,
        rules: list[FieldRule],
        is_key: bool = False,
    ) -> RenderedField:
        if data is None:
            return RenderedField("null", "", "null", 0)
        form, schema_id, text, note = self.decode(data, headers, is_key)
        if rules and text is not None:
            text = masks.structured(rules, text)
        if text is None:
            replacement = masks.opaque(rules, data)
            if replacement is not None:
                return RenderedField(
                    "masked", replacement, replacement, len(data), masked=True, schema_id=schema_id, note=note
                )
            return self._plain(data, form, schema_id, note)
        shown = laid_out(text, self._max_length)
        cut = len(shown) > self._max_length
        flat = one_line(text[: self._max_length]) if cut else one_line(text)
        return RenderedField(
            form,
            _printable(shown[: self._max_length]),
            single_line(shown if len(shown) < 40 else flat),
            len(data),
            cut,
            bool(rules),
            schema_id,
            note,
            "" if cut else flat,
        )

    def text_to_edit(self, data: bytes, headers: Headers) -> str:
        """A value that has a schema as JSON from which the same bytes can be made; ValueError if it has
        none."""
        if self._decoder is None:
            raise SerdeError("the console knows no registry")
        result = self._decoder.decode_with_schema(data, headers)
        assert result is not None
        text = TextBody(result.schema).decode(result.body)
        return laid_out(text, MAX_DECODED_BYTES)

    def decode(self, data: bytes, headers: Headers, is_key: bool = False) -> tuple[str, str, str | None, str]:
        """Form, schema id, the JSON text (for form json and the schema languages), and what went wrong."""
        note, schema_id = "", ""
        if (
            self._decoder is not None
            and len(data) <= MAX_DECODED_BYTES
            and self._framed(data, headers, is_key)
        ):
            schema_id = _schema_id(data)
            try:
                if time.monotonic() < self._registry_retry_at:
                    raise RegistryUnreachable(self._registry_error)
                result = self._decoder.decode_with_schema(data, headers, key=is_key)
                if result is not None:
                    named = str(result.schema.id) if result.schema.id >= 0 else schema_id
                    return result.schema.type.lower(), named, _json_of(result), ""
            except RegistryUnreachable as error:
                if time.monotonic() >= self._registry_retry_at:
                    self._registry_retry_at, self._registry_error = (
                        time.monotonic() + REGISTRY_PAUSE,
                        str(error),
                    )
                note = f"Not decoded: {error}"
            except (RegistryRefused, SerdeError) as error:
                note = f"Not decoded: {error}"
        if len(data) <= MAX_DECODED_BYTES:
            try:
                return "json", schema_id, _json_text(data), note
            except ValueError:
                pass
        return ("text" if _is_text(data) else "hex"), schema_id, None, note

    def _framed(self, data: bytes, headers: Headers, is_key: bool) -> bool:
        wanted = "__key_schema_id" if is_key else "__value_schema_id"
        return (len(data) >= 5 and data[0] == 0) or any(name == wanted for name, _ in headers)

    def _plain(self, data: bytes, form: str, schema_id: str, note: str) -> RenderedField:
        if form == "text":
            cut = len(data) > self._max_length
            text = _printable(data[: self._max_length].decode("utf-8", "ignore" if cut else "replace"))
            return RenderedField(
                "text", text, single_line(text[: PREVIEW * 2]), len(data), cut, False, schema_id, note
            )
        room = min(MAX_HEX_BYTES, self._max_length)
        preview = " ".join(f"{byte:02x}" for byte in data[:24])
        return RenderedField(
            "hex", hex_dump(data[:room]), preview, len(data), len(data) > room, False, schema_id, note
        )


def _schema_id(data: bytes) -> str:
    try:
        return str(split(data)[0])
    except NotFramed:
        return ""


def _json_text(data: bytes) -> str:
    """The JSON object or list in `data`; ValueError if it is none. Numbers and plain text do not count."""
    if data.lstrip(b" \t\r\n")[:1] not in (b"{", b"["):
        raise ValueError("not an object or a list")
    return check_json(data.decode())


def _json_of(result: Decoded) -> str:
    if result.schema.type != "JSON":
        return to_json(result.value)
    try:
        return check_json(bytes(result.body).decode())
    except ValueError as error:
        raise SerdeError(str(error)) from None


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
    return not any((char < " " and char not in "\t\r\n") or char == "\x7f" for char in text)


def _printable(text: str) -> str:
    """Control characters and lone halves of characters as visible signs."""
    return "".join(
        char
        if (char >= " " and char != "\x7f" and not "\ud800" <= char <= "\udfff") or char in "\t\n"
        else "\ufffd"
        for char in text
    )


def _header_text(value: bytes | None) -> str:
    if value is None:
        return "null"
    if _is_text(value):
        return _printable(value[:4096].decode("utf-8", "replace"))
    return "0x" + value[:512].hex()


def single_line(text: str) -> str:
    flat = " ".join(_printable(text[: PREVIEW * 4]).split())
    return flat if len(flat) <= PREVIEW else flat[: PREVIEW - 1] + "\u2026"


def hex_dump(data: bytes) -> str:
    lines = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        signs = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:06x}  {row.hex(' '):<47}  {signs}")
    return "\n".join(lines)


def utc_timestamp(milliseconds: int) -> str:
    """A timestamp in UTC, to the millisecond; -1 means that there is none."""
    if milliseconds < 0:
        return "none"
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{milliseconds % 1000:03d}"
