"""What units of a process have in common, such as a global table: made once, closed after the last owner.

Several lanes may live in a process (those of two hosts, or of a test), each in a thread of its own. What they
share has to be safe for that by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    owners: set[Hashable] = field(default_factory=set)
    made: bool = False
    value: Any = None


class SharedObjects:
    def __init__(self) -> None:
        self._entries: dict[Hashable, _Entry] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, owner: Hashable, make: Callable[[], Any]) -> Any:
        """Whoever comes first makes it; the others wait for that."""
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            entry.owners.add(owner)
        with entry.lock:
            if not entry.made:
                entry.value = make()
                entry.made = True
            return entry.value

    def release(self, owner: Hashable) -> None:
        """This one needs nothing any more."""
        with self._lock:
            for entry in self._entries.values():
                entry.owners.discard(owner)
            unused = {key: entry for key, entry in self._entries.items() if not entry.owners}
            for key in unused:
                del self._entries[key]
        for entry in unused.values():
            if hasattr(entry.value, "close"):
                entry.value.close()


OF_THIS_PROCESS = SharedObjects()
