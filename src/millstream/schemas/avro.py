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
        return self.root.full_name if self.root.kind == "record" else None

    def normalized(self) -> "AvroSchema":
        text = dumps(_normal(self.root, set(self._known)))
        return AvroSchema(text, self.sorted_references(), self.resolved)

    def formatted(self, form: str) -> str:
        return write(self.root) if form == "resolved" else self.canonical

    def has_top_level_field(self, field: str) -> bool:
        return self.root.kind == "record" and any(one.name == field for one in self.root.fields)

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


def _normal(kind: AvroType, known: set[str]) -> Any:
    if kind.kind == "union":
        return [_normal(branch, known) for branch in kind.branches]
    logical, other = _split_properties(kind.properties)
    if kind.kind in PRIMITIVES:
        if not logical and not other:
            return kind.kind
        return {"type": kind.kind, **logical, **other}
    if kind.kind in ("array", "map"):
        inside = "items" if kind.kind == "array" else "values"
        return {"type": kind.kind, inside: _normal(kind.inner, known), **logical, **other}
    if kind.full_name in known:
        return kind.full_name
    known.add(kind.full_name)
    out: dict[str, Any] = {"name": kind.full_name, "type": kind.kind}
    if kind.kind == "enum":
        out["symbols"] = kind.symbols
    elif kind.kind == "fixed":
        out["size"] = kind.size
    else:
        out["fields"] = [_normal_field(one, known) for one in kind.fields]
    out.update(logical)
    if kind.doc:
        out["doc"] = kind.doc
    if kind.aliases:
        out["aliases"] = sorted(kind.aliases)
    if kind.default is not None:
        out["default"] = kind.default
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
