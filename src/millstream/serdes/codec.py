"""Decoding and encoding of whole keys and values."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from millstream.schemas import Reference, parse
from millstream.serdes.bodies import Body, ProtobufBody, body_of
from millstream.serdes.client import RegisteredSchema, SchemaRegistry
from millstream.serdes.frame import NotFramed, split, with_id
from millstream.serdes.json_codecs import TextBody
from millstream.serdes.names import STRATEGIES, SubjectName
from millstream.serdes.typed import Record

Headers = Iterable[tuple[str, bytes | None]]


class SerdeError(ValueError):
    """A value does not fit its schema, or bytes are not what they claim to be."""


class Decoded(NamedTuple):
    value: Any
    schema: RegisteredSchema
    body: memoryview  # without the schema's id


class Decoder:
    """Turns keys and values of any registered schema into Python objects.

    reader    an Avro schema to read with: fields get its names, types and defaults, whatever version wrote
    them
    validate  check JSON against its schema
    as_text   JSON text instead of objects, from which an Encoder with `as_text` makes the same bytes again
    (see json_codecs)
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        *,
        reader: str | None = None,
        validate: bool = False,
        as_text: bool = False,
    ) -> None:
        self._registry = registry
        self._reader = RegisteredSchema(-1, "AVRO", reader) if reader is not None else None
        self._validate = validate
        self._as_text = as_text
        self._bodies: dict[int | str, tuple[RegisteredSchema, Body]] = {}

    def decode(self, data: bytes | None, headers: Headers = (), *, key: bool = False) -> Any:
        """The object in `data`; None for None."""
        found = self.decode_with_schema(data, headers, key=key)
        return None if found is None else found.value

    def decode_with_schema(
        self, data: bytes | None, headers: Headers = (), *, key: bool = False
    ) -> Decoded | None:
        if data is None:
            return None
        try:
            schema_id, body = self._split(data, headers, key)
            schema, codec = self._body(schema_id)
            return Decoded(codec.decode(body), schema, body)
        except NotFramed as error:
            raise SerdeError(str(error)) from None
        except Exception as error:
            if isinstance(error, SerdeError) or type(error).__module__.startswith("millstream.serdes.client"):
                raise
            # fastavro, protobuf and jsonschema have no common ground for what bad bytes can raise
            raise SerdeError(f"the bytes do not fit their schema: {type(error).__name__}: {error}") from error

    def _split(self, data: bytes, headers: Headers, key: bool) -> tuple[int | str, memoryview]:
        wanted = "__key_schema_id" if key else "__value_schema_id"
        for name, value in headers:
            if name == wanted and value:
                return split(value)[0], memoryview(data)
        return split(data)

    def _body(self, schema_id: int | str) -> tuple[RegisteredSchema, Body]:
        found = self._bodies.get(schema_id)
        if found is None:
            if isinstance(schema_id, int):
                schema = self._registry.schema(schema_id)
            else:
                schema = self._registry.schema_by_guid(schema_id)
            reader = self._reader if schema.type == "AVRO" else None
            body = TextBody(schema) if self._as_text else body_of(schema, reader, validate=self._validate)
            found = self._bodies[schema_id] = (schema, body)
        return found


class Encoder:
    """Turns Python objects into bytes by one schema.

    auto_register   register the schema at the first use; else it has to be there
    use_latest      write with the newest schema of the subject, whatever schema was given (which may then be
    left out)
    strategy        under which subject: "topic" (default), "record", "topic-record", or a function
    message         for Protobuf: the message's name, if it is not the first one of the file
    as_text         values are JSON texts
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | None = None,
        schema_type: str = "AVRO",
        *,
        references: tuple[Reference, ...] = (),
        auto_register: bool = True,
        use_latest: bool = False,
        normalize: bool = False,
        strategy: str | SubjectName = "topic",
        message: str | None = None,
        validate: bool = True,
        as_text: bool = False,
    ) -> None:
        if schema is None and not use_latest:
            raise ValueError("an encoder needs a schema, or use_latest")
        self._registry = registry
        self._auto_register = auto_register
        self._use_latest = use_latest
        self._normalize = normalize
        self._subject_name = STRATEGIES[strategy] if isinstance(strategy, str) else strategy
        self._message = message
        self._validate = validate
        self._as_text = as_text
        self._schema: RegisteredSchema | None = None
        self._name: str | None = None
        if schema is not None:
            resolved = registry.resolve(references)
            parsed = parse(schema_type, schema, references, resolved)
            self._schema = RegisteredSchema(-1, schema_type, parsed.canonical, references, resolved)
            self._name = message or parsed.name
        self._ready: dict[str, tuple[int, Body]] = {}

    def encode(self, topic: str, value: Any, *, key: bool = False) -> bytes | None:
        """The bytes for a value of that topic; None for None, which is a tombstone."""
        if value is None:
            return None
        if isinstance(value, Record):
            value = value.to_dict()
        subject = self._subject_name(topic, self._name, key)
        found = self._ready.get(subject)
        if found is None:
            found = self._ready[subject] = self._prepare(subject)
        schema_id, body = found
        try:
            return with_id(schema_id, body.encode(value))
        except Exception as error:  # as in decode: no common ground
            raise SerdeError(f"the value does not fit the schema of {subject}: {error}") from error

    def _prepare(self, subject: str) -> tuple[int, Body]:
        if self._use_latest:
            schema = self._registry.latest(subject)
            schema_id = schema.id
        else:
            assert self._schema is not None
            schema = self._schema
            find_id = self._registry.register if self._auto_register else self._registry.look_up
            schema_id = find_id(
                subject, schema.text, schema.type, schema.references, normalize=self._normalize
            )
        body: Body = TextBody(schema) if self._as_text else body_of(schema, validate=self._validate)
        if isinstance(body, ProtobufBody) and self._message is not None:
            body.path = body.path_to(self._message)
        return schema_id, body
