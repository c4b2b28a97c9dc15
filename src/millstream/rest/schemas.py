"""JSON to bytes and back by the schemas of a registry.

Which schema: an id, a version of a subject, the text itself (which is registered), or the newest of the
subject. Questions to the registry wait for its answer, so they run in threads; what is found is kept.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from millstream.rest import errors
from millstream.schemas import InvalidSchema
from millstream.serdes.client import RegisteredSchema, RegistryRefused, RegistryUnreachable, SchemaRegistry
from millstream.serdes.frame import split, with_id
from millstream.serdes.json_codecs import Codec, codec_of
from millstream.serdes.names import STRATEGIES

T = TypeVar("T")
THREADS = 4
MAX_CACHED = 2000
FORMATS = {"AVRO": "AVRO", "JSONSCHEMA": "JSON", "PROTOBUF": "PROTOBUF"}  # the proxy's names, the registry's
TYPES = {name: form for form, name in FORMATS.items()}
SUBJECTS = {"TOPIC_NAME": "topic", "RECORD_NAME": "record", "TOPIC_RECORD_NAME": "topic-record"}


@dataclass(frozen=True, slots=True)
class Chosen:
    """A schema to write with. version 0: not looked up."""

    id: int
    version: int
    subject: str
    form: str
    codec: Codec

    def encode(self, value: Any) -> bytes:
        try:
            return with_id(self.id, self.codec.encode(value))
        except (
            Exception
        ) as error:  # protobuf, jsonschema and the rest have no common ground for what does not fit
            raise errors.bad_request(_first_line(error)) from None


@dataclass(frozen=True, slots=True)
class Wish:
    """How a request names the schema of its keys or values."""

    topic: str
    is_key: bool
    form: str | None = None  # AVRO, JSONSCHEMA, PROTOBUF
    id: int | None = None
    version: int | None = None
    text: str | None = None
    subject: str | None = None
    strategy: str | None = None
    describe: bool = False  # version and subject are wanted, too


class Schemas:
    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="registry")
        self._chosen: dict[Wish, Chosen] = {}
        self._codecs: dict[int | str, Codec] = {}

    # Writing

    async def choose(self, wish: Wish) -> Chosen:
        """A RestError says why there is none."""
        found = self._chosen.get(wish)
        if found is None:
            found = await self.run(lambda: self._choose(wish))
            if wish.id is not None or wish.text is not None or wish.version is not None:
                if len(self._chosen) >= MAX_CACHED:
                    self._chosen.clear()
                self._chosen[wish] = found
        return found

    def _choose(self, wish: Wish) -> Chosen:
        what = "fetching the latest schema version"
        try:
            if wish.id is not None:
                what = f"fetching schema by id. schemaId = {wish.id}"
                schema = self._registry.schema(wish.id)
                subject = self._subject(wish, schema.parsed.name)
                what = f"fetching schema version. subject = {subject}, schemaId = {wish.id}"
                version = self._registry.version_of(schema.id, subject)
                if version is None:
                    raise errors.serialization_failed(f"Error when {what}: the subject does not have it.")
                return Chosen(schema.id, version, subject, TYPES[schema.type], self._codec(schema.id, schema))
            if wish.text is not None:
                return self._register(wish)
            subject = self._subject(wish, None)
            what = f"fetching schema. subject = {subject}, version = {wish.version or 'latest'}"
            body = self._registry.version(subject, wish.version or "latest")
            schema = self._registry.schema(int(body["id"]), subject)
            return Chosen(
                schema.id,
                int(body["version"]),
                subject,
                TYPES[schema.type],
                self._codec(schema.id, schema),
            )
        except (RegistryRefused, RegistryUnreachable) as error:
            raise refused(error, what) from None
        except InvalidSchema as error:
            raise errors.invalid_schema(_first_line(error)) from None

    def _register(self, wish: Wish) -> Chosen:
        from millstream.schemas import parse

        assert wish.text is not None and wish.form is not None
        schema_type = FORMATS[wish.form]
        try:
            parsed = parse(schema_type, wish.text, new=True)
        except (ValueError, RecursionError) as error:
            raise errors.invalid_schema(
                f"Error when parsing raw schema. format = {wish.form}: {_first_line(error)}"
            ) from None
        subject = self._subject(wish, parsed.name)
        schema_id = self._registry.register(subject, parsed.canonical, schema_type)
        schema = RegisteredSchema(schema_id, schema_type, parsed.canonical)
        version = self._version(subject, schema) if wish.describe else 0
        return Chosen(schema_id, version, subject, wish.form, self._codec(schema_id, schema))

    def _version(self, subject: str, schema: RegisteredSchema) -> int:
        found = self._registry.found(subject, schema.text, schema.type, schema.references)
        return int(found["version"])

    def _subject(self, wish: Wish, record: str | None) -> str:
        if wish.subject is not None:
            return wish.subject
        try:
            return STRATEGIES[SUBJECTS[wish.strategy or "TOPIC_NAME"]](wish.topic, record, wish.is_key)
        except ValueError as error:
            raise errors.bad_request(str(error)) from None

    # Reading

    async def prepare(self, data: list[bytes]) -> None:
        """Get the schemas of these keys and values, as far as they can be had; `decode` tells of the
        others."""
        missing = set()
        for one in data:
            try:
                schema_id, _ = split(one)
            except ValueError:
                continue
            if schema_id not in self._codecs:
                missing.add(schema_id)
        for schema_id in missing:
            await self.run(lambda schema_id=schema_id: self._read(schema_id))  # type: ignore[misc]

    def _read(self, schema_id: int | str) -> None:
        try:
            if isinstance(schema_id, int):
                self._codec(schema_id, self._registry.schema(schema_id))
            else:
                self._codec(schema_id, self._registry.schema_by_guid(schema_id))
        except (RegistryRefused, RegistryUnreachable) as error:
            raise errors.cannot_deserialize(f"Error retrieving schema {schema_id}: {error}") from None
        except ValueError as error:
            raise errors.cannot_deserialize(
                f"Error reading schema {schema_id}: {_first_line(error)}"
            ) from None

    def decode(self, data: bytes) -> Any:
        """ValueError for bytes that do not fit, KeyError for a schema that was not prepared."""
        schema_id, body = split(data)
        codec = self._codecs[schema_id]
        try:
            return codec.decode(bytes(body))
        except Exception as error:  # as in encode
            raise ValueError(f"the bytes do not fit schema {schema_id}: {_first_line(error)}") from None

    def _codec(self, schema_id: int | str, schema: RegisteredSchema) -> Codec:
        found = self._codecs.get(schema_id)
        if found is None:
            if len(self._codecs) >= MAX_CACHED:
                self._codecs.clear()
            found = self._codecs[schema_id] = codec_of(schema)
        return found

    async def run(self, question: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, question)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def refused(error: RegistryRefused | RegistryUnreachable, what: str) -> errors.RestError:
    if isinstance(error, RegistryRefused):
        if error.code == 40301 or error.status == 403:
            return errors.RestError(403, 40301, f"Error when {what}: {error}")
        if error.code == 42201:
            return errors.invalid_schema(str(error))
    return errors.serialization_failed(f"Error when {what}: {error}")


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:500]
