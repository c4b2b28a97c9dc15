"""All associations, in memory. Only `apply` changes them, in the order of the topic."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from millstream.registry.associations.model import ANY, Association, AssociationId, Json


@dataclass(frozen=True, slots=True)
class AssociationFilter:
    """None, and an empty collection, let everything pass."""

    resource_type: str | None = None
    association_types: Collection[str] = ()
    lifecycle: str | None = None

    def accepts(self, one: Association) -> bool:
        return (
            self.resource_type in (None, one.id.resource_type)
            and (not self.association_types or one.id.association_type in self.association_types)
            and self.lifecycle in (None, one.lifecycle)
        )


EVERYTHING = AssociationFilter()


class AssociationState:
    def __init__(self) -> None:
        self._all: dict[AssociationId, Association] = {}
        self._by_subject: dict[str, dict[AssociationId, None]] = {}
        self._by_resource_id: dict[str, dict[AssociationId, None]] = {}
        self._by_resource_name: dict[str, dict[AssociationId, None]] = {}

    def of_subject(self, subject: str, wanted: AssociationFilter = EVERYTHING) -> list[Association]:
        return self._sorted(self._by_subject.get(subject, ()), wanted)

    def of_resource(self, resource_id: str, wanted: AssociationFilter = EVERYTHING) -> list[Association]:
        return self._sorted(self._by_resource_id.get(resource_id, ()), wanted)

    def named(
        self, resource_name: str, namespace: str, wanted: AssociationFilter = EVERYTHING
    ) -> list[Association]:
        """Of the resources with that name in that namespace; ANY stands for any."""
        ids = self._all if resource_name == ANY else self._by_resource_name.get(resource_name, ())
        return self._sorted((one for one in ids if namespace in (ANY, one.resource_namespace)), wanted)

    def _sorted(self, ids: Iterable[AssociationId], wanted: AssociationFilter) -> list[Association]:
        found = (self._all[one] for one in ids)
        return sorted((one for one in found if wanted.accepts(one)), key=lambda one: one.id)

    def apply(self, key: Json, value: Json | None, timestamp: int) -> None:
        association_id = AssociationId.from_key(key)
        new = None if value is None else Association.from_value(association_id, value)
        old = self._all.pop(association_id, None)
        if old is not None:
            for index, name in self._indexes(old):
                index[name].pop(association_id)
                if not index[name]:
                    del index[name]
        if new is not None:
            created = timestamp if old is None else old.created
            self._all[association_id] = replace(new, created=created, updated=timestamp)
            for index, name in self._indexes(new):
                index.setdefault(name, {})[association_id] = None

    def _indexes(self, one: Association) -> list[tuple[dict[str, dict[AssociationId, None]], str]]:
        return [
            (self._by_subject, one.id.subject),
            (self._by_resource_id, one.resource_id),
            (self._by_resource_name, one.id.resource_name),
        ]
