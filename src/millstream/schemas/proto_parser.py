"""Parses .proto files (proto2, proto3, editions). Comments are dropped."""

import re
from typing import Any, NoReturn

from millstream.schemas.proto_model import (
    MAX_TAG,
    Constant,
    Enum,
    Extend,
    Field,
    Group,
    Message,
    OneOf,
    Option,
    ProtoFile,
    Ranges,
    Rpc,
    Service,
    Word,
)
from millstream.schemas.schema import InvalidSchema

TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/                      # skipped
    |(?P<word>\.?[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*
      |0[xX][0-9A-Fa-f]+|(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<mark>[{}()\[\]<>=;,.:+\-/])""",
    re.VERBOSE | re.DOTALL,
)
ESCAPE = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL
)
ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
LABELS = frozenset({"optional", "required", "repeated"})
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
MAX_DEPTH = 64


def parse_file(text: str) -> ProtoFile:
    return _Parser(text).file()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        self._positions: list[int] = []
        position = 0
        while position < len(text):
            match = TOKEN.match(text, position)
            if match is None:
                line = text.count("\n", 0, position) + 1
                raise InvalidSchema(f"Syntax error in line {line}: unexpected '{text[position]}'")
            if match.lastgroup is not None:
                self._tokens.append(match.group())
                self._positions.append(position)
            position = match.end()
        self._at = 0
        self._depth = 0

    # One token ahead

    def _fail(self, expected: str) -> NoReturn:
        at = min(self._at, len(self._tokens) - 1)
        line = self._text.count("\n", 0, self._positions[at]) + 1 if self._tokens else 1
        found = f"'{self._tokens[self._at]}'" if self._at < len(self._tokens) else "end of file"
        raise InvalidSchema(f"Syntax error in line {line}: expected {expected}, found {found}")

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self, expected: str = "more") -> str:
        if self._at >= len(self._tokens):
            self._fail(expected)
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, token: str) -> bool:
        if self._peek() == token:
            self._at += 1
            return True
        return False

    def _expect(self, token: str) -> None:
        if not self._take(token):
            self._fail(f"'{token}'")

    def _identifier(self) -> str:
        if not IDENTIFIER.match(self._peek()):
            self._fail("a name")
        return self._next()

    def _name(self) -> str:
        """A name that may be qualified, with or without a leading dot."""
        word = self._peek()
        if len(word.lstrip(".")) == 0 or not (word[0].isalpha() or word[0] in "._"):
            self._fail("a name")
        return self._next()

    def _string(self) -> str:
        if self._peek()[:1] not in ("'", '"') or not self._peek():
            self._fail("a string")
        parts = []
        while self._peek()[:1] in ("'", '"') and self._peek():
            parts.append(ESCAPE.sub(_unescape, self._next()[1:-1]))
        return "".join(parts)

    def _integer(self) -> int:
        negative = self._take("-")
        token = self._peek()
        try:
            number = int(token, 8) if re.fullmatch(r"0[0-7]+", token) else int(token, 0)
        except ValueError:
            self._fail("a number")
        self._at += 1
        return -number if negative else number

    # Statements

    def file(self) -> ProtoFile:
        proto = ProtoFile()
        while self._at < len(self._tokens):
            if self._take(";"):
                continue
            match self._peek():
                case "syntax":
                    self._at += 1
                    self._expect("=")
                    proto.syntax = self._string()
                    if proto.syntax not in ("proto2", "proto3"):
                        raise InvalidSchema(f"unexpected syntax: {proto.syntax}")
                    self._expect(";")
                case "edition":
                    self._at += 1
                    self._expect("=")
                    proto.edition = self._string()
                    self._expect(";")
                case "package":
                    self._at += 1
                    if proto.package is not None:
                        raise InvalidSchema("too many package names")
                    proto.package = self._name()
                    self._expect(";")
                case "import":
                    self._at += 1
                    if self._take("public"):
                        proto.public_imports.append(self._string())
                    elif self._take("weak"):
                        proto.weak_imports.append(self._string())
                    else:
                        proto.imports.append(self._string())
                    self._expect(";")
                case "option":
                    proto.options.append(self._option_statement())
                case "message":
                    self._at += 1
                    proto.types.append(self._message(self._identifier()))
                case "enum":
                    proto.types.append(self._enum())
                case "service":
                    proto.services.append(self._service())
                case "extend":
                    proto.extends.append(self._extend())
                case _:
                    self._fail("a statement")
        return proto

    def _message(self, name: str) -> Message:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidSchema("messages nested too deeply")
        message = Message(name)
        self._expect("{")
        while not self._take("}"):
            if self._take(";"):
                continue
            following = self._tokens[self._at + 1] if self._at + 1 < len(self._tokens) else ""
            word = self._peek()
            if word == "message" and IDENTIFIER.match(following) and self._third() == "{":
                self._at += 1
                message.types.append(self._message(self._identifier()))
            elif word == "enum" and IDENTIFIER.match(following) and self._third() == "{":
                message.types.append(self._enum())
            elif word == "oneof" and IDENTIFIER.match(following) and self._third() == "{":
                message.oneofs.append(self._oneof())
            elif word == "extend" and self._third() == "{":
                message.extends.append(self._extend())
            elif word == "option":
                message.options.append(self._option_statement())
            elif word == "reserved" and self._third() != "=":
                message.reserved.append(self._ranges())
            elif word == "extensions" and self._third() != "=":
                message.extensions.append(self._ranges())
            else:
                self._field_or_group(message.fields, message.groups)
        self._depth -= 1
        return message

    def _third(self) -> str:
        return self._tokens[self._at + 2] if self._at + 2 < len(self._tokens) else ""

    def _field_or_group(self, fields: list[Field], groups: list[Group], *, labels: bool = True) -> None:
        label = None
        following = self._tokens[self._at + 1] if self._at + 1 < len(self._tokens) else ""
        if self._peek() in LABELS and following != "=" and self._third() != "=":
            if not labels:
                raise InvalidSchema(f"no label allowed in a oneof: {self._peek()}")
            label = self._next()
        elif self._peek() in LABELS and following not in ("=",) and self._third() == "=" and labels:
            # `optional x = 1`: a label without a type, or a type called like a label
            self._fail("a type and a name")
        if self._peek() == "group" and self._third() == "=":
            self._at += 1
            name = self._identifier()
            self._expect("=")
            tag = self._tag()
            if self._peek() == "[":
                self._option_list()
            groups.append(Group(name, tag, label, self._message(name)))
            return
        one = Field(type=self._type(), name=self._identifier(), tag=0, label=label)
        self._expect("=")
        one.tag = self._tag()
        if self._peek() == "[":
            for option in self._option_list():
                if option.name == "default" and not option.parenthesized:
                    one.default = option.value.text if isinstance(option.value, Word) else str(option.value)
                elif option.name == "json_name" and not option.parenthesized:
                    one.json_name = str(option.value)
                else:
                    one.options.append(option)
        self._expect(";")
        fields.append(one)

    def _tag(self) -> int:
        tag = self._integer()
        if not 1 <= tag <= MAX_TAG or 19000 <= tag <= 19999:
            raise InvalidSchema(f"protobuf tag value out of range: {tag}")
        return tag

    def _type(self) -> str:
        name = self._name()
        if name == "map" and self._take("<"):
            key = self._name()
            self._expect(",")
            value = self._name()
            self._expect(">")
            return f"map<{key}, {value}>"
        return name

    def _oneof(self) -> OneOf:
        self._at += 1
        oneof = OneOf(self._identifier())
        self._expect("{")
        while not self._take("}"):
            if self._take(";"):
                continue
            if self._peek() == "option":
                oneof.options.append(self._option_statement())
            else:
                self._field_or_group(oneof.fields, oneof.groups, labels=False)
        return oneof

    def _enum(self) -> Enum:
        self._at += 1
        enum = Enum(self._identifier())
        self._expect("{")
        while not self._take("}"):
            if self._take(";"):
                continue
            if self._peek() == "option" and self._third() != "":
                following = self._tokens[self._at + 1]
                if following != "=":
                    enum.options.append(self._option_statement())
                    continue
            if self._peek() == "reserved" and self._tokens[self._at + 1 : self._at + 2] != ["="]:
                enum.reserved.append(self._ranges())
                continue
            constant = Constant(self._identifier(), 0)
            self._expect("=")
            constant.tag = self._integer()
            if self._peek() == "[":
                constant.options = self._option_list()
            self._expect(";")
            enum.constants.append(constant)
        return enum

    def _extend(self) -> Extend:
        self._at += 1
        extend = Extend(self._name())
        groups: list[Group] = []
        self._expect("{")
        while not self._take("}"):
            if not self._take(";"):
                self._field_or_group(extend.fields, groups)
        return extend

    def _service(self) -> Service:
        self._at += 1
        service = Service(self._identifier())
        self._expect("{")
        while not self._take("}"):
            if self._take(";"):
                continue
            if self._peek() == "option":
                service.options.append(self._option_statement())
                continue
            self._expect("rpc")
            rpc = Rpc(self._identifier(), "", "")
            rpc.request_streams, rpc.request = self._rpc_type()
            self._expect("returns")
            rpc.response_streams, rpc.response = self._rpc_type()
            if self._take("{"):
                while not self._take("}"):
                    if not self._take(";"):
                        rpc.options.append(self._option_statement())
                self._take(";")
            else:
                self._expect(";")
            service.rpcs.append(rpc)
        return service

    def _rpc_type(self) -> tuple[bool, str]:
        self._expect("(")
        streams = self._peek() == "stream" and self._tokens[self._at + 1 : self._at + 2] != [")"]
        if streams:
            self._at += 1
        name = self._name()
        self._expect(")")
        return streams, name

    def _ranges(self) -> Ranges:
        self._at += 1
        ranges = Ranges([])
        while True:
            if self._peek()[:1] in ("'", '"'):
                ranges.values.append(self._string())
            elif IDENTIFIER.match(self._peek()):
                ranges.values.append(self._next())
            else:
                first = self._integer()
                if self._take("to"):
                    last = MAX_TAG if self._take("max") else self._integer()
                    ranges.values.append((first, last))
                else:
                    ranges.values.append(first)
            if not self._take(","):
                break
        if self._peek() == "[":
            ranges.options = self._option_list()
        self._expect(";")
        return ranges

    # Options

    def _option_statement(self) -> Option:
        self._expect("option")
        option = self._option("=")
        self._expect(";")
        return option

    def _option_list(self) -> list[Option]:
        self._expect("[")
        options = []
        while not self._take("]"):
            options.append(self._option("="))
            if not self._take(",") and self._peek() != "]":
                self._fail("',' or ']'")
        return options

    def _option(self, separator: str) -> Option:
        parenthesized = self._take("(")
        name = self._name()
        if parenthesized:
            self._expect(")")
        more = []
        while self._peek().startswith(".") and len(self._peek()) > 1:
            more += self._next()[1:].split(".")
        while self._take("."):
            if self._take("("):
                more.append(f"({self._name()})")
                self._expect(")")
            else:
                more += self._name().split(".")
        self._expect(separator)
        value = self._value()
        for part in reversed(more):
            value = Option(part, value)
        return Option(name, value, parenthesized)

    def _value(self) -> Any:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidSchema("options nested too deeply")
        first = self._peek()
        value: Any
        if first == "{":
            value = self._map("}")
        elif first == "<":
            value = self._map(">")
        elif first == "[":
            value = []
            self._at += 1
            while not self._take("]"):
                value.append(self._value())
                if not self._take(",") and self._peek() != "]":
                    self._fail("',' or ']'")
        elif first[:1] in ("'", '"') and first:
            value = self._string()
        else:
            sign = "-" if self._take("-") else ""
            if not sign:
                self._take("+")
            if not self._peek() or self._peek() in "{}()[]<>=;,.:/":
                self._fail("a value")
            value = Word(sign + self._next())
        self._depth -= 1
        return value

    def _map(self, end: str) -> dict[str, Any]:
        self._at += 1
        entries: dict[str, Any] = {}
        while not self._take(end):
            if self._take("["):
                key = self._name()
                while self._take("/"):
                    key += "/" + self._name()
                key = f"[{key}]"
                self._expect("]")
            else:
                key = self._identifier()
            if not self._take(":") and self._peek() not in ("{", "<"):
                self._fail("':'")
            value = self._value()
            if key not in entries:
                entries[key] = value
            elif isinstance(entries[key], list):
                entries[key] += value if isinstance(value, list) else [value]
            else:
                entries[key] = [entries[key], *(value if isinstance(value, list) else [value])]
            if not self._take(","):
                self._take(";")
        return entries


def _unescape(match: re.Match[str]) -> str:
    hexadecimal, octal, short, long, other = match.groups()
    if hexadecimal is not None:
        return chr(int(hexadecimal, 16))
    if octal is not None:
        return chr(int(octal, 8))
    if short is not None or long is not None:
        code = int(short or long, 16)
        return chr(code) if code < 0x110000 else "�"
    return ESCAPES.get(other, other)
