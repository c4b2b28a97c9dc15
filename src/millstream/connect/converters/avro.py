"""AvroConverter: Avro with a Schema Registry, as Confluent's converter has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.connect.config.config_def import ConfigDef
from millstream.connect.converters.avro_schemas import ANYTHING, ANYTHING_TYPE, AvroOptions, FromAvro, ToAvro
from millstream.connect.converters.avro_values import (
    Decoders,
    Encoders,
    WireSchema,
    from_anything,
    to_anything,
)
from millstream.connect.converters.registry import COMMON, RegistryConverter, ValueReader, flag
from millstream.connect.data.schema import Schema
from millstream.schemas.avro import AvroSchema
from millstream.schemas.avro_model import AvroType, write
from millstream.serdes.client import RegisteredSchema
from millstream.settings.config_key import Importance


class AvroConverter(RegistryConverter):
    language = "AVRO"
    write_error = "Failed to serialize Avro data from topic {}:"
    read_error = "Failed to deserialize data for topic {} to Avro:"
    config = COMMON + ConfigDef(
        [
            flag(
                "enhanced.avro.schema.support",
                False,
                "Whether enums stay enums and branches of unions have their full names.",
                Importance.MEDIUM,
            ),
            flag(
                "scrub.invalid.names",
                False,
                "Whether characters that Avro's names cannot have are replaced.",
                Importance.MEDIUM,
            ),
            flag("connect.meta.data", True, "Whether Avro's schemas keep what only Connect's can say."),
            flag("allow.optional.map.keys", False, "Whether a map with optional text keys is Avro's map."),
            flag("flatten.singleton.unions", True, "Whether a union of one type is that type."),
        ]
    )

    def __init__(self, settings: Any, *, is_key: bool = False) -> None:
        super().__init__(settings, is_key=is_key)
        self._options = AvroOptions(
            enhanced=self.settings["enhanced.avro.schema.support"],
            meta_data=self.settings["connect.meta.data"],
            scrub=self.settings["scrub.invalid.names"],
            optional_map_keys=self.settings["allow.optional.map.keys"],
            flatten_singletons=self.settings["flatten.singleton.unions"],
        )

    def _schema_text(self, schema: Schema | None) -> tuple[str, str | None]:
        made = ANYTHING_TYPE if schema is None else ToAvro(self._options).type_of(schema)
        return write(made), made.full_name if made.type == "record" else None

    def _encoder(self, schema: Schema | None, target: RegisteredSchema) -> Callable[[Any], bytes]:
        root = _root(target)
        wire = WireSchema(root)
        if schema is None:
            return lambda value: wire.write(to_anything(value))
        encode = Encoders(wire, self._options, with_default=self._with_default).or_null(schema, root)
        return lambda value: wire.write(encode(value))

    def _decoder(self, registered: RegisteredSchema, version: int | None) -> ValueReader:
        root = _root(registered)
        wire = WireSchema(root)
        if root.full_name == ANYTHING:
            return ValueReader(lambda _body: (None, lambda body: from_anything(wire.read(body))))
        schema = FromAvro(self._options).schema_of(root, version)
        decode = Decoders(self._options).of(schema, root)
        read = wire.read if decode is None else lambda body: decode(wire.read(body))
        return ValueReader(lambda _body: (schema, read))


def _root(registered: RegisteredSchema) -> AvroType:
    parsed = registered.parsed
    assert isinstance(parsed, AvroSchema)
    return parsed.root
