"""An association, and its record in the topic `_schemas`: keys of the type ASSOC."""

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

Json = dict[str, Any]

TENANT = "default"
STRONG = "STRONG"
WEAK = "WEAK"
LIFECYCLES = (STRONG, WEAK)
ASSOCIATION_TYPES = ("key", "value")
TOPIC = "topic"
ANY = "-"  # any resource, any namespace


class AssociationId(NamedTuple):
    """In the order in which Confluent's registry lists associations."""

    resource_name: str
    resource_namespace: str
    resource_type: str
    association_type: str
    subject: str

    def key(self) -> bytes:
        return _dump(
            {
                "keytype": "ASSOC",
                "tenant": TENANT,
                "resourceName": self.resource_name,
                "resourceNamespace": self.resource_namespace,
                "resourceType": self.resource_type,
                "associationType": self.association_type,
                "subject": self.subject,
                "magic": 0,
            }
        )

    @classmethod
    def from_key(cls, key: Json) -> "AssociationId":
        return cls(
            str(key["resourceName"]),
            str(key["resourceNamespace"]),
            str(key["resourceType"]),
            str(key["associationType"]),
            str(key["subject"]),
        )


@dataclass(frozen=True, slots=True)
class Association:
    id: AssociationId
    guid: str
    resource_id: str
    lifecycle: str
    frozen: bool
    created: int | None = None  # milliseconds; known once the record has been read
    updated: int | None = None

    def record(self) -> tuple[bytes, bytes]:
        value = {
            "guid": self.guid,
            "tenant": TENANT,
            "resourceName": self.id.resource_name,
            "resourceNamespace": self.id.resource_namespace,
            "resourceId": self.resource_id,
            "resourceType": self.id.resource_type,
            "associationType": self.id.association_type,
            "subject": self.id.subject,
            "lifecycle": self.lifecycle,
            "frozen": self.frozen,
        }
        return self.id.key(), _dump(value)

    @classmethod
    def from_value(cls, association_id: AssociationId, value: Json) -> "Association":
        return cls(
            association_id,
            str(value["guid"]),
            str(value["resourceId"]),
            str(value["lifecycle"]),
            bool(value.get("frozen", False)),
        )

    def body(self) -> Json:
        """As a list of associations shows it."""
        found: Json = {
            "subject": self.id.subject,
            "guid": self.guid,
            "resourceName": self.id.resource_name,
            "resourceNamespace": self.id.resource_namespace,
            "resourceId": self.resource_id,
            "resourceType": self.id.resource_type,
            "associationType": self.id.association_type,
            "lifecycle": self.lifecycle,
            **self._exceptional(),
        }
        if self.created is not None:
            found["createTs"] = self.created
        if self.updated is not None:
            found["updateTs"] = self.updated
        return found

    def summary(self) -> Json:
        """As the response for a resource shows it."""
        return {
            "subject": self.id.subject,
            "associationType": self.id.association_type,
            "lifecycle": self.lifecycle,
            **self._exceptional(),
        }

    def _exceptional(self) -> Json:
        """Whether it is frozen is said only where the lifecycle does not say it."""
        return {} if self.frozen == (self.lifecycle == STRONG) else {"frozen": self.frozen}


def _dump(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
