"""A .proto file as objects, in the order of its text, and the names that it defines."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

SCALARS = frozenset(
    [
        "double",
        "float",
        "int32",
        "int64",
        "uint32",
        "uint64",
        "sint32",
        "sint64",
        "fixed32",
        "fixed64",
        "sfixed32",
        "sfixed64",
        "bool",
        "string",
        "bytes",
    ]
)
MAX_TAG = 536870911


@dataclass(slots=True)
class Word:
    """A value in an option that is not a string: a number, true, false or an enum's constant, as written."""

    text: str


@dataclass(slots=True)
class Option:
    """`name = value`. The value is text (a string literal), a Word, a dict, a list, or one more Option for
    `(name).more`."""

    name: str
    value: Any
    parenthesized: bool = False


@dataclass(slots=True)
class Field:
    name: str
    type: str  # a scalar, a name as written, or "map<key, value>"
    tag: int
    label: str | None = None
    options: list[Option] = field(default_factory=list)
    default: str | None = None
    json_name: str | None = None


@dataclass(slots=True)
class OneOf:
    name: str
    fields: list[Field] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    groups: "list[Group]" = field(default_factory=list)


@dataclass(slots=True)
class Group:
    name: str
    tag: int
    label: str | None
    body: "Message"


@dataclass(slots=True)
class Extend:
    name: str
    fields: list[Field] = field(default_factory=list)


@dataclass(slots=True)
class Ranges:
    """`reserved` or `extensions`: numbers, (first, last) pairs and names."""

    values: list[int | str | tuple[int, int]]
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Message:
    name: str
    fields: list[Field] = field(default_factory=list)
    oneofs: list[OneOf] = field(default_factory=list)
    types: "list[Message | Enum]" = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    reserved: list[Ranges] = field(default_factory=list)
    extensions: list[Ranges] = field(default_factory=list)
    extends: list[Extend] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)

    @property
    def is_map_entry(self) -> bool:
        return any(
            option.name == "map_entry" and isinstance(option.value, Word) and option.value.text == "true"
            for option in self.options
        )

    @property
    def map_type(self) -> str:
        """Of a map's entry: the type that the map's field has."""
        types = {one.name: one.type for one in self.fields}
        return f"map<{types.get('key', 'string')}, {types.get('value', 'string')}>"


@dataclass(slots=True)
class Constant:
    name: str
    tag: int
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Enum:
    name: str
    constants: list[Constant] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    reserved: list[Ranges] = field(default_factory=list)


@dataclass(slots=True)
class Rpc:
    name: str
    request: str
    response: str
    request_streams: bool = False
    response_streams: bool = False
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class Service:
    name: str
    rpcs: list[Rpc] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class ProtoFile:
    syntax: str | None = None
    edition: str | None = None
    package: str | None = None
    imports: list[str] = field(default_factory=list)
    public_imports: list[str] = field(default_factory=list)
    weak_imports: list[str] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    types: list[Message | Enum] = field(default_factory=list)
    services: list[Service] = field(default_factory=list)
    extends: list[Extend] = field(default_factory=list)

    def all_imports(self) -> list[str]:
        return [*self.imports, *self.public_imports, *self.weak_imports]


@dataclass(frozen=True, slots=True)
class Named:
    """A type with its full name, the package and the import name of the file that defines it."""

    full_name: str
    type: Message | Enum
    package: str
    file: str  # "" for the schema itself

    @property
    def local_name(self) -> str:
        return self.full_name[len(self.package) + 1 :] if self.package else self.full_name


class Names:
    """All types that a schema can use: its own and those of the files that it depends on."""

    def __init__(self, root: ProtoFile, dependencies: Mapping[str, ProtoFile]) -> None:
        self._types: dict[str, Named] = {}
        for file, proto in dependencies.items():
            self._collect(proto, file)
        self._collect(root, "")

    def _collect(self, proto: ProtoFile, file: str) -> None:
        package = proto.package or ""
        for full_name, declared in walk(proto.types, package):
            self._types[full_name] = Named(full_name, declared, package, file)

    def resolve(self, name: str, scope: str) -> Named | None:
        """The type that `name` means inside of `scope` (a full name), innermost first."""
        if name.startswith("."):
            return self._types.get(name[1:])
        while scope:
            found = self._types.get(f"{scope}.{name}")
            if found is not None:
                return found
            scope = scope.rpartition(".")[0]
        return self._types.get(name)


def walk(types: list[Message | Enum], prefix: str) -> Iterator[tuple[str, Message | Enum]]:
    for declared in types:
        full_name = f"{prefix}.{declared.name}" if prefix else declared.name
        yield full_name, declared
        if isinstance(declared, Message):
            yield from walk(declared.types, full_name)
            groups = [*declared.groups, *(group for oneof in declared.oneofs for group in oneof.groups)]
            for group in groups:
                yield f"{full_name}.{group.name}", group.body
                yield from walk(group.body.types, f"{full_name}.{group.name}")


def map_types(text: str) -> tuple[str, str] | None:
    """Key and value of a map's type, or None for any other type."""
    if not text.startswith("map<"):
        return None
    key, _, value = text[4:-1].partition(",")
    return key.strip(), value.strip()
