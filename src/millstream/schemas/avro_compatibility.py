"""Whether data written with one Avro schema can be read with another: Avro's resolution rules.

Same type: arrays and maps by their contents, fixed by name and size, enums by name and symbols (a reader's
enum default takes what it does not know), records by name and fields, unions branch by branch. Different
types: int, long, float and double widen, bytes and string exchange, a writer's union must be readable whole,
a reader's union needs one branch that can read. Names match without their namespace, or by an alias of the
reader. Recursive types are compared once: while a pair is being compared, the same pair inside of it is taken
to be fine.
"""

from dataclasses import dataclass

from millstream.schemas.avro_model import PRIMITIVES, AvroField, AvroType

WIDENS = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "bytes": {"string"},
    "string": {"bytes"},
}


@dataclass(frozen=True, slots=True)
class Problem:
    incompatibility: str
    path: str
    detail: str

    def __str__(self) -> str:
        detail = _literal(self.detail)
        text = DESCRIPTIONS[self.incompatibility].format(path=self.path, detail=detail)
        return f"{{errorType:'{self.incompatibility}', description:'{text}', additionalInfo:'{detail}'}}"


DESCRIPTIONS = {
    "FIXED_SIZE_MISMATCH": "the fixed at '{path}' has another size in the %s schema than in the %s schema",
    "TYPE_MISMATCH": "the type at '{path}' in the %s schema cannot read the type in the %s schema",
    "NAME_MISMATCH": "the name at '{path}' is not the same in both schemas and is no alias",
    "MISSING_ENUM_SYMBOLS": "the %s schema lacks the enum symbols {detail} at '{path}' of the %s schema",
    "MISSING_UNION_BRANCH": "the %s schema has no branch at '{path}' for a type that the %s schema has there",
    "READER_FIELD_MISSING_DEFAULT_VALUE": (
        "the field '{detail}' at '{path}' in the %s schema has no default and is not in the %s schema"
    ),
}


def _literal(text: str) -> str:
    return text.replace("%", "%%")


def problems(reader: AvroType, writer: AvroType) -> list[str]:
    return [str(problem) for problem in _Comparison().compare(reader, writer, "")]


class _Comparison:
    def __init__(self) -> None:
        self._pairs: dict[tuple[int, int], list[Problem]] = {}

    def compare(self, reader: AvroType, writer: AvroType, path: str) -> list[Problem]:
        pair = (id(reader), id(writer))
        if pair in self._pairs:
            return self._pairs[pair]
        self._pairs[pair] = []
        found = self._same_type(reader, writer, path) if reader.type == writer.type else None
        if found is None:
            found = self._other_type(reader, writer, path)
        self._pairs[pair] = found
        return found

    def _same_type(self, reader: AvroType, writer: AvroType, path: str) -> list[Problem]:
        avro_type = reader.type
        if avro_type in PRIMITIVES:
            return []
        if avro_type in ("array", "map"):
            inside = "items" if avro_type == "array" else "values"
            return self.compare(reader.inner, writer.inner, f"{path}/{inside}")
        if avro_type == "union":
            found = []
            for index, branch in enumerate(writer.branches):
                if self.compare(reader, branch, f"{path}/{index}"):
                    found.append(_lacking(branch, f"{path}/{index}"))
            return found
        found = _names(reader, writer, path)
        if avro_type == "fixed" and reader.size != writer.size:
            detail = f"expected: {writer.size}, found: {reader.size}"
            found.append(Problem("FIXED_SIZE_MISMATCH", f"{path}/size", detail))
        elif avro_type == "enum" and reader.default is None:
            unknown = sorted(set(writer.symbols) - set(reader.symbols))
            if unknown:
                found.append(Problem("MISSING_ENUM_SYMBOLS", f"{path}/symbols", f"[{', '.join(unknown)}]"))
        elif avro_type == "record":
            for index, one in enumerate(reader.fields):
                found += self._field(one, writer, f"{path}/fields/{index}")
        return found

    def _field(self, one: AvroField, writer: AvroType, path: str) -> list[Problem]:
        written = {field.name: field for field in writer.fields}
        for name in (one.name, *one.aliases):
            if name in written:
                return self.compare(one.type, written[name].type, f"{path}/type")
        if one.has_default:
            return []
        if one.type.type == "enum" and one.type.default is not None:
            return self.compare(one.type, writer, f"{path}/type")
        return [Problem("READER_FIELD_MISSING_DEFAULT_VALUE", path, one.name)]

    def _other_type(self, reader: AvroType, writer: AvroType, path: str) -> list[Problem]:
        if writer.type == "union":
            return [problem for branch in writer.branches for problem in self.compare(reader, branch, path)]
        if reader.type == "union":
            if any(not self.compare(branch, writer, path) for branch in reader.branches):
                return []
            return [_lacking(writer, path)]
        if writer.type in WIDENS.get(reader.type, ()):
            return []
        detail = f"reader type: {reader.type.upper()} not compatible with writer type: {writer.type.upper()}"
        return [Problem("TYPE_MISMATCH", path or "/", detail)]


def _lacking(writer: AvroType, path: str) -> Problem:
    return Problem(
        "MISSING_UNION_BRANCH", path or "/", f"reader union lacking writer type: {writer.type.upper()}"
    )


def _names(reader: AvroType, writer: AvroType, path: str) -> list[Problem]:
    if reader.name == writer.name or writer.full_name in reader.aliases:
        return []
    return [Problem("NAME_MISMATCH", f"{path}/name", f"expected: {writer.full_name}")]
