"""Writes a .proto file in the registry's canonical order: messages before enums, and in a message reserved,
options, fields, oneofs, groups, extensions, nested types. Without comments.

Normalized, also: imports and options sorted, fields and constants by number, names in full with a leading
dot, maps as maps (not as their entry messages), one reserved range a line, no `syntax` for proto2, numbers in
one spelling.
"""

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from millstream.schemas.proto_model import (
    MAX_TAG,
    SCALARS,
    Constant,
    Enum,
    Extend,
    Field,
    Group,
    Message,
    Names,
    OneOf,
    Option,
    ProtoFile,
    Ranges,
    Service,
    Word,
    map_types,
)
from millstream.schemas.schema import InvalidSchema

ESCAPES = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        "'": "\\'",
        '"': '\\"',
    }
)
NUMBERS = SCALARS - {"bool", "string"}


def canonical_text(proto: ProtoFile, *, extensions: bool = True) -> str:
    return _Printer(None, extensions).file(proto)


def normalized_text(proto: ProtoFile, names: Names) -> str:
    return _Printer(names, True).file(proto)


class _Printer:
    def __init__(self, names: Names | None, extensions: bool) -> None:
        self._names = names
        self._normal = names is not None
        self._extensions = extensions

    def file(self, proto: ProtoFile) -> str:
        scope = proto.package or ""
        out = []
        if proto.syntax and not (self._normal and proto.syntax == "proto2"):
            out.append(f'syntax = "{proto.syntax}";\n')
        elif proto.edition:
            out.append(f'edition = "{proto.edition}";\n')
        if proto.package is not None:
            out.append(f"package {proto.package};\n")
        if proto.imports or proto.public_imports or proto.weak_imports:
            out.append("\n")
            for word, files in (
                ("", proto.imports),
                ("public ", proto.public_imports),
                ("weak ", proto.weak_imports),
            ):
                out += [
                    f'import {word}"{name}";\n' for name in (sorted(set(files)) if self._normal else files)
                ]
        options = self._sorted(proto.options)
        if options:
            out.append("\n")
            out += [f"option {self._option(option)};\n" for option in options]
        out += self._types(proto.types, scope, indent=False)
        if proto.extends and self._extensions:
            out.append("\n")
            out += [self._extend(extend, scope) for extend in self._grouped(proto.extends, scope)]
        if proto.services:
            out.append("\n")
            out += [self._service(service, scope) for service in proto.services]
        return "".join(out)

    def _types(self, types: Sequence[Message | Enum], scope: str, *, indent: bool) -> list[str]:
        messages = [declared for declared in types if isinstance(declared, Message)]
        if self._normal:
            messages = [declared for declared in messages if not declared.is_map_entry]
        enums = [declared for declared in types if isinstance(declared, Enum)]
        if not messages and not enums:
            return []
        texts = [self._message(declared, _join(scope, declared.name)) for declared in messages]
        texts += [self._enum(declared) for declared in enums]
        return ["\n", *(_indented(text) if indent else text for text in texts)]

    def _message(self, message: Message, scope: str) -> str:
        out = [f"message {message.name} {{"]
        out += self._block([self._ranges("reserved", one) for one in self._single(message.reserved)])
        out += self._block([f"option {self._option(option)};\n" for option in self._sorted(message.options)])
        out += self._block([self._field(one, scope) for one in self._by_tag(message.fields)])
        oneofs = message.oneofs
        if self._normal:
            kept = [oneof for oneof in oneofs if oneof.fields]
            oneofs = sorted(kept, key=lambda oneof: min(one.tag for one in oneof.fields))
        out += self._block([self._oneof(oneof, scope) for oneof in oneofs])
        groups = sorted(message.groups, key=lambda group: group.tag) if self._normal else message.groups
        out += self._block([self._group(group, scope) for group in groups])
        if self._extensions:
            out += self._block([self._ranges("extensions", one) for one in self._single(message.extensions)])
            out += self._block(
                [self._extend(extend, scope) for extend in self._grouped(message.extends, scope)]
            )
        out += self._types(message.types, scope, indent=True)
        out.append("}\n")
        return "".join(out)

    def _block(self, texts: list[str]) -> list[str]:
        return ["\n", *(_indented(text) for text in texts)] if texts else []

    def _by_tag(self, fields: list[Field]) -> list[Field]:
        return sorted(fields, key=lambda one: one.tag) if self._normal else fields

    def _single(self, ranges: list[Ranges]) -> list[Ranges]:
        if not self._normal:
            return ranges
        singles = [Ranges([value], one.options) for one in ranges for value in one.values]

        def order(one: Ranges) -> tuple[int, str]:
            value = one.values[0]
            if isinstance(value, str):
                return MAX_TAG + 1, value
            return (value if isinstance(value, int) else value[0]), str(value)

        return sorted(singles, key=order)

    def _grouped(self, extends: list[Extend], scope: str) -> list[Extend]:
        if not self._normal:
            return extends
        groups: dict[str, Extend] = {}
        for extend in extends:
            name = self._resolved(extend.name, scope)
            groups.setdefault(name, Extend(name)).fields.extend(extend.fields)
        return list(groups.values())

    def _sorted(self, options: list[Option]) -> list[Option]:
        if not self._normal:
            return options
        return sorted(options, key=lambda option: (option.parenthesized, option.name))

    def _resolved(self, name: str, scope: str) -> str:
        assert self._names is not None
        found = self._names.resolve(name, scope)
        if found is None:
            raise InvalidSchema(f"Could not resolve type: {name}")
        return f".{found.full_name}"

    def _oneof(self, oneof: OneOf, scope: str) -> str:
        out = [f"oneof {oneof.name} {{"]
        out += self._block([f"option {self._option(option)};\n" for option in self._sorted(oneof.options)])
        out += self._block([self._field(one, scope) for one in self._by_tag(oneof.fields)])
        out += self._block([self._group(group, scope) for group in oneof.groups])
        return "".join([*out, "}\n"])

    def _group(self, group: Group, scope: str) -> str:
        label = f"{group.label} " if group.label else ""
        out = [f"{label}group {group.name} = {group.tag} {{"]
        out += self._block([self._field(one, scope) for one in self._by_tag(group.body.fields)])
        return "".join([*out, "}\n"])

    def _extend(self, extend: Extend, scope: str) -> str:
        out = [f"extend {extend.name} {{"]
        out += self._block([self._field(one, scope) for one in self._by_tag(extend.fields)])
        return "".join([*out, "}\n"])

    def _enum(self, enum: Enum) -> str:
        out = [f"enum {enum.name} {{"]
        if enum.reserved or enum.options or enum.constants:
            out.append("\n")
        out += [_indented(self._ranges("reserved", one)) for one in self._single(enum.reserved)]
        out += [_indented(f"option {self._option(option)};\n") for option in self._sorted(enum.options)]
        constants = enum.constants
        if self._normal:
            constants = sorted(constants, key=lambda constant: (constant.tag, constant.name))
        out += [_indented(self._constant(constant)) for constant in constants]
        return "".join([*out, "}\n"])

    def _constant(self, constant: Constant) -> str:
        return f"{constant.name} = {constant.tag}{self._options(constant.options)};\n"

    def _field(self, one: Field, scope: str) -> str:
        type_name, label = one.type, one.label
        if self._normal:
            type_name, label = self._full_type(type_name, label, scope)
        options = list(one.options)
        if one.default is not None:
            plain = type_name in NUMBERS or type_name not in SCALARS or type_name == "bool"
            options.append(Option("default", Word(one.default) if plain else one.default))
        if one.json_name is not None:
            options.append(Option("json_name", one.json_name))
        prefix = f"{label} " if label else ""
        return f"{prefix}{type_name} {one.name} = {one.tag}{self._options(options)};\n"

    def _full_type(self, type_name: str, label: str | None, scope: str) -> tuple[str, str | None]:
        assert self._names is not None
        if type_name not in SCALARS and map_types(type_name) is None:
            found = self._names.resolve(type_name, scope)
            if found is None:
                raise InvalidSchema(f"Could not resolve type: {type_name}")
            if isinstance(found.type, Message) and found.type.is_map_entry:
                type_name = found.type.map_type
            else:
                type_name = f".{found.full_name}"
        pair = map_types(type_name)
        if pair is None:
            return type_name, label
        key, value = pair
        if value not in SCALARS:
            found = self._names.resolve(value, scope)
            value = f".{found.full_name}" if found is not None else value
        return f"map<{key}, {value}>", None

    def _service(self, service: Service, scope: str) -> str:
        out = [f"service {service.name} {{"]
        out += self._block([f"option {self._option(option)};\n" for option in self._sorted(service.options)])
        rpcs = []
        for rpc in service.rpcs:
            request, response = rpc.request, rpc.response
            if self._normal:
                request, response = self._resolved(request, scope), self._resolved(response, scope)
            text = (
                f"rpc {rpc.name} ({'stream ' if rpc.request_streams else ''}{request})"
                f" returns ({'stream ' if rpc.response_streams else ''}{response})"
            )
            options = self._sorted(rpc.options)
            if options:
                inside = "".join(_indented(f"option {self._option(option)};\n") for option in options)
                text += f" {{\n{inside}}}"
            rpcs.append(f"{text};\n")
        return "".join([*out, *self._block(rpcs), "}\n"])

    def _ranges(self, word: str, ranges: Ranges) -> str:
        texts = []
        for value in ranges.values:
            if isinstance(value, str):
                texts.append(f'"{value}"')
            elif isinstance(value, int) or (self._normal and value[0] == value[1]):
                texts.append(str(value if isinstance(value, int) else value[0]))
            else:
                texts.append(f"{value[0]} to {value[1] if value[1] < MAX_TAG else 'max'}")
        return f"{word} {', '.join(texts)}{self._options(ranges.options)};\n"

    # Options

    def _options(self, options: Sequence[Option]) -> str:
        options = self._sorted(list(options))
        return f" {self._list(options)}" if options else ""

    def _list(self, values: Sequence[Any]) -> str:
        if len(values) == 1:
            return f"[{self._value(values[0])}]"
        lines = [self._value(value) for value in values]
        inside = "".join(
            _indented(line + ("," if index < len(lines) - 1 else "")) for index, line in enumerate(lines)
        )
        return f"[\n{inside}]"

    def _option(self, option: Option) -> str:
        name = f"({option.name})" if option.parenthesized else option.name
        if isinstance(option.value, Option):
            return f"{name}.{self._option(option.value)}"
        if isinstance(option.value, list):
            return f"{name} = {self._list(option.value)}"
        return f"{name} = {self._value(option.value)}"

    def _value(self, value: Any) -> str:
        if isinstance(value, Option):
            return self._option(value)
        if isinstance(value, Word):
            return _plain_number(value.text) if self._normal else value.text
        if isinstance(value, dict):
            entries = list(value.items())
            if self._normal:
                entries = sorted(entry for entry in entries if entry[1] != [])
            inside = ""
            for index, (key, child) in enumerate(entries):
                inside += _indented(f"{key}: {self._value(child)}{',' if index < len(entries) - 1 else ''}")
            return f"{{\n{inside}}}"
        if isinstance(value, list):
            if self._normal and len(value) == 1:
                return self._value(value[0])
            inside = ""
            for index, child in enumerate(value):
                inside += _indented(f"{self._value(child)}{',' if index < len(value) - 1 else ''}")
            return f"[\n{inside}]"
        return f'"{str(value).translate(ESCAPES)}"'


def _plain_number(text: str) -> str:
    """A number in one spelling: 0x10 as 16, 1.50 as 1.5, 10.0 as 10; whatever is no number stays as it is."""
    if not text[-1:].isdigit() and not text[:1].isdigit() and text[:1] != "-":
        return text
    try:
        if text.lstrip("-")[:2].lower() == "0x":
            return str(int(text, 16))
        number = Decimal(text)
    except (InvalidOperation, ValueError):
        return text
    if not number.is_finite():
        return text
    plain = f"{number:f}" if abs(number.adjusted()) < 20 else str(number)
    return plain.rstrip("0").rstrip(".") if "." in plain and "E" not in plain else plain


def _join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.removesuffix("\n").split("\n"))
