"""--key-format and --value-format of the console tools: keys and values by the schemas of a registry.

Properties have the names of Confluent's kafka-avro-console-consumer and -producer:

    schema.registry.url                              where the registry is; http://localhost:8081
    schema.registry.basic.auth.user.info             user:password (or basic.auth.user.info)
    schema.registry.ssl.truststore.location          certificates to trust, PEM
    value.schema, value.schema.file, value.schema.id     what to write with; the same for key
    auto.register                                    false: the schema has to be there
    value.subject, key.subject                       instead of topic-value and topic-key
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.message_formatter import ConsumerRecord
from millstream.cli.record_reader import LineMessageReader, ParsedRecord

if TYPE_CHECKING:
    from millstream.serdes import Decoder, SchemaRegistry

FORMATS = {"avro": "AVRO", "jsonschema": "JSON", "json-schema": "JSON", "protobuf": "PROTOBUF"}
PLAIN = ("", "string")
OF_REGISTRY = ("schema.registry.", "basic.auth.", "auto.register", "use.latest.version")
OF_SCHEMAS = tuple(
    f"{part}.{name}"
    for part in ("key", "value")
    for name in ("schema", "schema.file", "schema.id", "subject")
)


def check(option: str, form: str) -> str:
    """The registry's name of a format; empty for bytes as they are."""
    name = form.lower()
    if name in PLAIN:
        return ""
    if name not in FORMATS:
        raise UsageError(f"{option} {form}: use string, {', '.join(FORMATS)}")
    return FORMATS[name]


def divided(properties: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Properties of the registry and its schemas, and the others."""
    ours: dict[str, str] = {}
    others: dict[str, str] = {}
    for name, value in properties.items():
        mine = name.startswith(OF_REGISTRY) or name in OF_SCHEMAS
        (ours if mine else others)[name] = value
    return ours, others


def registry(properties: Mapping[str, str]) -> "SchemaRegistry":
    try:
        from millstream.serdes import SchemaRegistry
    except ImportError as error:
        raise CommandFailed(
            f'formats with schemas need more packages: pip install "millstream[services]" ({error})'
        ) from None
    info = (
        properties.get("schema.registry.basic.auth.user.info") or properties.get("basic.auth.user.info") or ""
    )
    user, _, password = info.partition(":")
    try:
        return SchemaRegistry(
            properties.get("schema.registry.url", "http://localhost:8081"),
            user=user or None,
            password=password,
            ca_file=properties.get("schema.registry.ssl.truststore.location"),
        )
    except (ValueError, OSError) as error:
        raise UsageError(f"schema.registry.url: {error}") from None


class SchemaPrinter:
    """Decodes the keys and values of records into a line of JSON. ValueError where the bytes do not fit.

    What is printed is what Confluent's tools print, and what `SchemaMessageReader` reads again without loss:
    Avro by its JSON encoding, in which a timestamp is a number and a union says its branch. An expression
    of --where sees what people expect (`readable`): dates as text, no branches.
    """

    def __init__(self, key: str, value: str, properties: Mapping[str, str]) -> None:
        self._key, self._value = bool(key), bool(value)
        self._registry = registry(properties)
        from millstream.serdes import Decoder

        self._text_decoder = Decoder(self._registry, as_text=True)
        self._decoder = Decoder(self._registry)

    def __call__(self, record: ConsumerRecord) -> ConsumerRecord:
        return self._with(record, self._text_decoder, str)

    def readable(self, record: ConsumerRecord) -> ConsumerRecord:
        from millstream.serdes import to_json

        return self._with(record, self._decoder, to_json)

    def _with(
        self, record: ConsumerRecord, decoder: "Decoder", write: Callable[[Any], str]
    ) -> ConsumerRecord:
        key, value = record.key, record.value
        if self._key:
            key = self._decoded(record, key, decoder, write, is_key=True)
        if self._value:
            value = self._decoded(record, value, decoder, write, is_key=False)
        return record._replace(key=key, value=value)

    def _decoded(
        self,
        record: ConsumerRecord,
        data: bytes | None,
        decoder: "Decoder",
        write: Callable[[Any], str],
        *,
        is_key: bool,
    ) -> bytes | None:
        from millstream.serdes import RegistryRefused, RegistryUnreachable

        if data is None:
            return None
        try:
            return write(decoder.decode(data, record.headers, key=is_key)).encode("utf-8", "surrogatepass")
        except RegistryRefused as error:
            raise ValueError(f"the registry says: {error}") from None
        except RegistryUnreachable as error:
            raise CommandFailed(str(error)) from None


class SchemaMessageReader(LineMessageReader):
    """Lines with JSON into keys and values by schemas."""

    def __init__(
        self, topic: str, key: str, value: str, properties: Mapping[str, str], lines: Mapping[str, str]
    ) -> None:
        super().__init__(lines)
        self._registry = registry(properties)
        self._encode_key = self._encoder(topic, "key", key, properties) if key else None
        self._encode_value = self._encoder(topic, "value", value, properties) if value else None

    def parse(self, line: bytes) -> ParsedRecord:
        parsed = super().parse(line)
        key, value = parsed.key, parsed.value
        if self._encode_key is not None and key is not None:
            key = self._encode_key(key)
        if self._encode_value is not None and value is not None:
            value = self._encode_value(value)
        return parsed._replace(key=key, value=value)

    def _encoder(self, topic: str, part: str, form: str, properties: Mapping[str, str]) -> Any:
        from millstream.schemas import parse
        from millstream.serdes import RegisteredSchema, RegistryRefused, RegistryUnreachable
        from millstream.serdes.frame import with_id
        from millstream.serdes.json_codecs import TextBody
        from millstream.serdes.json_text import check_json

        text, number = schema_text(part, properties), properties.get(f"{part}.schema.id")
        if (text is None) == (number is None):
            raise UsageError(
                f"--{part}-format needs a schema: --reader-property {part}.schema=..., "
                f"{part}.schema.file=... or "
                f"{part}.schema.id=..."
            )
        try:
            if text is None:
                schema = self._registry.schema(int(str(number)))
            else:
                subject = properties.get(f"{part}.subject", f"{topic}-{part}")
                canonical = parse(form, text, new=True).canonical
                known = properties.get("auto.register", "true").lower() == "false"
                ask = self._registry.look_up if known else self._registry.register
                schema = RegisteredSchema(ask(subject, canonical, form), form, canonical)
            if schema.type != form:
                raise UsageError(f"the schema with id {schema.id} is of type {schema.type}")
            body = TextBody(schema)
        except (RegistryRefused, RegistryUnreachable) as error:
            raise CommandFailed(f"{part}.schema: {error}") from None
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{part}.schema: {error}") from None

        def encode(data: bytes) -> bytes:
            try:
                text = check_json(data.decode())
            except ValueError as error:
                raise CommandFailed(f"line {self._number}: the {part} is not JSON: {error}") from None
            try:
                return with_id(schema.id, body.encode(text))
            except Exception as error:
                raise CommandFailed(
                    f"line {self._number}: the {part} does not fit its schema: {error}"
                ) from None

        return encode


def schema_text(part: str, properties: Mapping[str, str]) -> str | None:
    path = properties.get(f"{part}.schema.file")
    if path is None:
        return properties.get(f"{part}.schema")
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{part}.schema.file: {error}") from None
