"""Avro schemas: canonical text, normal form and compatibility.

The canonical text keeps everything that the author wrote, docs and properties too, in the order of attributes
that Java Avro uses; a type of a referenced schema is only named. The normal form is Avro's parsing canonical
form with full names, extended by what the registry must not lose (defaults, docs, aliases, logical types,
properties in order).
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from millstream.schemas.avro_model import PRIMITIVES, AvroField, AvroType, Parser, write
from millstream.schemas.json_text import dumps, in_order, loads
from millstream.schemas.schema import InvalidSchema, ParsedSchema, Reference


class AvroSchema(ParsedSchema):
    schema_type = "AVRO"

    def __init__(
        self, text: str, references: Sequence[Reference], resolved: Mapping[str, str], *, new: bool = False
    ) -> None:
        super().__init__(references, resolved)
        parser = Parser(check_defaults=new, check_names=new, check_namespaces=new)
        for referred in resolved.values():
            parser.parse(_load(referred))
        self._known = set(parser.names)
        parser.check_names = True
        try:
            self.root = parser.parse(_load(text))
        except RecursionError:
            raise InvalidSchema("nested too deeply") from None

    @cached_property
    def canonical(self) -> str:
        return write(self.root, self._known)

    @property
    def name(self) -> str | None:
        return self.root.full_name if self.root.type == "record" else None

    def normalized(self) -> "AvroSchema":
        text = dumps(_normal(self.root, set(self._known)))
        return AvroSchema(text, self.sorted_references(), self.resolved)

    def formatted(self, form: str) -> str:
        return write(self.root) if form == "resolved" else self.canonical

    def has_top_level_field(self, field: str) -> bool:
        return self.root.type == "record" and any(one.name == field for one in self.root.fields)

    def problems_reading(self, previous: ParsedSchema) -> list[str]:
        from millstream.schemas.avro_compatibility import problems

        assert isinstance(previous, AvroSchema)
        return problems(self.root, previous.root)


def _load(text: str) -> Any:
    try:
        return loads(text)
    except ValueError as error:
        stripped = text.strip()
        if stripped in PRIMITIVES:  # Java's parser takes a bare primitive name
            return stripped
        raise InvalidSchema(str(error)) from None


def _normal(avro_type: AvroType, known: set[str]) -> Any:
    if avro_type.type == "union":
        return [_normal(branch, known) for branch in avro_type.branches]
    logical, other = _split_properties(avro_type.properties)
    if avro_type.type in PRIMITIVES:
        if not logical and not other:
            return avro_type.type
        return {"type": avro_type.type, **logical, **other}
    if avro_type.type in ("array", "map"):
        inside = "items" if avro_type.type == "array" else "values"
        return {"type": avro_type.type, inside: _normal(avro_type.inner, known), **logical, **other}
    if avro_type.full_name in known:
        return avro_type.full_name
    known.add(avro_type.full_name)
    out: dict[str, Any] = {"name": avro_type.full_name, "type": avro_type.type}
    if avro_type.type == "enum":
        out["symbols"] = avro_type.symbols
    elif avro_type.type == "fixed":
        out["size"] = avro_type.size
    else:
        out["fields"] = [_normal_field(one, known) for one in avro_type.fields]
    out.update(logical)
    if avro_type.doc:
        out["doc"] = avro_type.doc
    if avro_type.aliases:
        out["aliases"] = sorted(avro_type.aliases)
    if avro_type.default is not None:
        out["default"] = avro_type.default
    out.update(other)
    return out


def _normal_field(one: AvroField, known: set[str]) -> dict[str, Any]:
    out: dict[str, Any] = {"name": one.name, "type": _normal(one.type, known), "order": one.order}
    if one.doc is not None:
        out["doc"] = one.doc
    if one.aliases:
        out["aliases"] = sorted(one.aliases)
    if one.has_default:
        out["default"] = in_order(one.default)
    out.update(in_order(one.properties))
    return out


def _split_properties(properties: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The logical type first, then all other properties by name."""
    logical: dict[str, Any] = {}
    other = in_order(properties)
    if isinstance(properties.get("logicalType"), str):
        logical["logicalType"] = other.pop("logicalType")
        if logical["logicalType"] == "decimal":
            for key in ("precision", "scale"):
                if other.get(key):
                    logical[key] = other.pop(key)
    return logical, other
