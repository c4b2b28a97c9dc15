"""A module's text. Fields with a default come after those without, as dataclasses want it, otherwise in the
schema's order; all are keyword arguments anyway."""

import json
import keyword
import re

from millstream import __version__
from millstream.schemas import ParsedSchema
from millstream.serdes.codegen.model import (
    NO_DEFAULT,
    EnumClass,
    FieldClass,
    Module,
    RecordClass,
    identifier,
)

LINE = 100


def write(module: Module, schema: ParsedSchema, source: str) -> str:
    body = [
        _enum(one) if isinstance(one, EnumClass) else _record(one, module, schema) for one in module.classes
    ]
    text = "\n\n\n".join(body)
    origin = f" from {source}" if source else ""
    head = [
        f'"""Made by `millstream registry codegen` {__version__}{origin}. Do not edit: make it again."""',
        "",
    ]
    head.append("from __future__ import annotations\n")
    imports = [name for name in ("datetime", "decimal", "uuid") if f"{name}." in text]
    head += [f"import {name}" for name in imports]
    uses_field = "field(default_factory" in text
    head.append(f"from dataclasses import dataclass{', field' if uses_field else ''}")
    if "StrEnum" in text:
        head.append("from enum import StrEnum")
    typing = [name for name in ("Any", "ClassVar") if re.search(rf"\b{name}\b", text)]
    if typing:
        head.append(f"from typing import {', '.join(typing)}")
    head += ["", "from millstream.serdes import Record", "", ""]
    return "\n".join(head) + "\n" + text + "\n"


def _docstring(text: str, indent: str = "    ") -> list[str]:
    cleaned = text.replace("\\", "\\\\").replace('"""', "'''").strip()
    return [f'{indent}"""{" ".join(cleaned.split())}"""', ""] if cleaned else []


def _enum(one: EnumClass) -> str:
    lines = [f"class {one.name}(StrEnum):", *_docstring(one.doc)]
    used = set()
    for symbol in one.symbols:
        name = identifier(symbol)
        while name in used or name in ("mro", "name", "value"):
            name += "_"
        used.add(name)
        lines.append(f"    {name} = {json.dumps(symbol)}")
    if not one.symbols:
        lines.append("    pass")
    return "\n".join(lines)


def _record(one: RecordClass, module: Module, schema: ParsedSchema) -> str:
    lines = ["@dataclass(kw_only=True, slots=True)", f"class {one.name}(Record):", *_docstring(one.doc)]
    lines.append(f'    SCHEMA_TYPE: ClassVar[str] = "{schema.schema_type}"')
    if one.name == module.root:
        lines.append(f"    SCHEMA: ClassVar[str] = {_literal(schema.canonical)}")
    names = _python_names(one.fields)
    renamed = {python: name for name, python in names.items() if python != name}
    if renamed:
        lines.append(f"    NAMES: ClassVar[dict[str, str]] = {json.dumps(renamed, ensure_ascii=False)}")
    lines.append("")
    for item in one.fields:
        default = "" if item.default == NO_DEFAULT else f" = {item.default}"
        lines.append(f"    {names[item.name]}: {item.type}{default}")
        lines += [line for line in _docstring(item.doc)[:1]]
    return "\n".join(lines).rstrip()


def _python_names(fields: list[FieldClass]) -> dict[str, str]:
    names: dict[str, str] = {}
    for one in fields:
        name = identifier(one.name)
        while name in names.values() or keyword.iskeyword(name):
            name += "_"
        names[one.name] = name
    return names


def _literal(text: str) -> str:
    """A string literal, over several lines where it is long."""
    if len(text) <= LINE - 40:
        return repr(text)
    pieces = [text[start : start + LINE] for start in range(0, len(text), LINE)]
    inside = "\n".join(f"        {piece!r}" for piece in pieces)
    return f"(\n{inside}\n    )"
