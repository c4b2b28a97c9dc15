"""JSON Schemas, drafts 4 to 2020-12. The canonical text is the JSON as written, without white space; the
normal form has the keys of every object in order.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

from millstream.schemas.json_loader import load
from millstream.schemas.json_model import Node, ObjectNode
from millstream.schemas.json_text import dumps, in_order, loads
from millstream.schemas.schema import InvalidSchema, ParsedSchema, Reference


class JsonSchema(ParsedSchema):
    schema_type = "JSON"

    def __init__(self, text: str, references: Sequence[Reference], resolved: Mapping[str, str]) -> None:
        super().__init__(references, resolved)
        try:
            self.document = loads(text)
        except ValueError as error:
            raise InvalidSchema(str(error)) from None

    @cached_property
    def root(self) -> Node:
        try:
            return load(self.document, self.resolved)
        except RecursionError:
            raise InvalidSchema("nested too deeply") from None

    @cached_property
    def canonical(self) -> str:
        return dumps(self.document)

    @property
    def name(self) -> str | None:
        title = self.document.get("title") if isinstance(self.document, dict) else None
        return title if isinstance(title, str) else None

    def normalized(self) -> "JsonSchema":
        return JsonSchema(dumps(in_order(self.document)), self.sorted_references(), self.resolved)

    def validate(self, *, strict: bool = False) -> None:
        root = self.root
        if strict and isinstance(root, ObjectNode):
            for name in root.properties:
                if name.startswith("$$"):
                    raise InvalidSchema(f"#/properties/{name}: field names cannot start with $$")

    def has_top_level_field(self, field: str) -> bool:
        return isinstance(self.root, ObjectNode) and field in self.root.properties

    def problems_reading(self, previous: ParsedSchema, *, lenient: bool = False) -> list[str]:
        from millstream.schemas.json_compatibility import problems

        assert isinstance(previous, JsonSchema)
        try:
            return problems(previous.root, self.root, lenient=lenient)
        except RecursionError:
            raise InvalidSchema("too complex to be compared with another version") from None
