"""A registry in memory, for tests that need ids and subjects but no server."""

from __future__ import annotations

from millstream.schemas import Reference
from millstream.serdes.client import RegisteredSchema, RegistryRefused, SchemaRegistry


class MemoryRegistry(SchemaRegistry):
    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1")
        self.schemas: dict[int, RegisteredSchema] = {}
        self.versions: dict[str, list[RegisteredSchema]] = {}

    def add(self, subject: str, text: str, schema_type: str, schema_id: int | None = None) -> int:
        for known in self.schemas.values():
            if (known.text, known.type) == (text, schema_type) and schema_id in (None, known.id):
                found = known
                break
        else:
            number = schema_id if schema_id is not None else max(self.schemas, default=0) + 1
            found = self.schemas[number] = RegisteredSchema(number, schema_type, text)
            assert found.parsed is not None
        self.versions.setdefault(subject, []).append(found)
        return found.id

    def register(
        self,
        subject: str,
        text: str,
        schema_type: str = "AVRO",
        references: tuple[Reference, ...] = (),
        *,
        normalize: bool = False,
    ) -> int:
        return self.add(subject, text, schema_type)

    def schema(self, schema_id: int, subject: str = "") -> RegisteredSchema:
        if schema_id not in self.schemas:
            raise RegistryRefused(404, 40403, "Schema not found")
        return self.schemas[schema_id]

    def latest(self, subject: str) -> RegisteredSchema:
        if subject not in self.versions:
            raise RegistryRefused(404, 40401, f"Subject '{subject}' not found.")
        return self.versions[subject][-1]
