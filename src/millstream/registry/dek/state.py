"""The keys that the topic holds, in memory. Only `apply` changes them, in the order of the topic."""

import json
import logging

from millstream.registry.dek.keys import Dek, DekId, Kek, dek_from, dek_id_from, kek_from

log = logging.getLogger(__name__)


class KeyState:
    def __init__(self) -> None:
        self._keks: dict[str, tuple[Kek, int]] = {}  # with the record's timestamp
        self._deks: dict[DekId, tuple[Dek, int]] = {}
        self.left_out = 0

    # Questions

    def kek(self, name: str, *, deleted: bool = False) -> tuple[Kek, int] | None:
        """A KEK and when it was written; a soft-deleted one only with `deleted`."""
        found = self._keks.get(name)
        return found if found and (deleted or not found[0].deleted) else None

    def keks(self, *, deleted: bool = False) -> list[Kek]:
        return [kek for _, (kek, _) in sorted(self._keks.items()) if deleted or not kek.deleted]

    def dek(self, dek_id: DekId, *, deleted: bool = False) -> tuple[Dek, int] | None:
        found = self._deks.get(dek_id)
        return found if found and (deleted or not found[0].deleted) else None

    def deks(
        self,
        kek_name: str | None = None,
        subject: str | None = None,
        algorithm: str | None = None,
        *,
        deleted: bool = False,
    ) -> list[Dek]:
        """Those of a KEK, a subject, an algorithm; by subject, algorithm and version."""
        found = [
            dek
            for dek_id, (dek, _) in self._deks.items()
            if kek_name in (None, dek_id.kek_name)
            and subject in (None, dek_id.subject)
            and algorithm in (None, dek_id.algorithm)
            and (deleted or not dek.deleted)
        ]
        return sorted(found, key=lambda dek: dek.id)

    @property
    def kek_count(self) -> int:
        return len(self._keks)

    @property
    def dek_count(self) -> int:
        return len(self._deks)

    # Changes

    def apply(self, key: bytes | None, value: bytes | None, timestamp: int) -> None:
        try:
            parsed_key = json.loads(key or b"")
            match parsed_key["type"], None if value is None else json.loads(value):
                case "KEK", None:
                    self._keks.pop(str(parsed_key["name"]), None)
                case "KEK", kek:
                    self._keks[str(parsed_key["name"])] = (kek_from(kek), timestamp)
                case "DEK", None:
                    self._deks.pop(dek_id_from(parsed_key), None)
                case "DEK", dek:
                    self._deks[dek_id_from(parsed_key)] = (dek_from(dek), timestamp)
                case other, _:
                    raise ValueError(f"type {other}")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.left_out += 1
            log.warning("a record of the keys is not understood and left out: %s", error)
