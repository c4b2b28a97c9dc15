"""The config topic: its records, and what they come to. Pure.

connector-x      {"properties": {...}}              a connector's settings
task-x-0         {"properties": {...}}              a task's settings, which count with the next commit
commit-x         {"tasks": n}                       the task settings since the last commit count now
target-state-x   {"state": ..., "state.v2": ...}    STARTED, PAUSED or STOPPED (KIP-875)
restart-connector-x, tasks-fencing-x, session-key, logger-cluster-...   read and kept out of the way
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

Pair = tuple[bytes, bytes | None]

STARTED, PAUSED, STOPPED = "STARTED", "PAUSED", "STOPPED"


def connector_record(name: str, settings: dict[str, str] | None) -> Pair:
    return f"connector-{name}".encode(), None if settings is None else _json({"properties": settings})


def task_records(name: str, tasks: list[dict[str, str]]) -> list[Pair]:
    """All tasks, and the commit that makes them count."""
    records = [
        (f"task-{name}-{number}".encode(), _json({"properties": settings}))
        for number, settings in enumerate(tasks)
    ]
    return [*records, (f"commit-{name}".encode(), _json({"tasks": len(tasks)}))]


def target_state_record(name: str, state: str | None) -> Pair:
    """Workers before KIP-875 know no STOPPED: to them it is a pause."""
    old = PAUSED if state == STOPPED else state
    value = None if state is None else _json({"state": old, "state.v2": state})
    return f"target-state-{name}".encode(), value


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(slots=True)
class ConfigState:
    connectors: dict[str, dict[str, str]] = field(default_factory=dict)
    target_states: dict[str, str] = field(default_factory=dict)
    tasks: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    """Of each connector, as its last commit says."""
    _uncommitted: dict[str, dict[int, dict[str, str]]] = field(default_factory=dict)

    def apply(self, key: bytes | None, value: bytes | None) -> str | None:
        """Returns the name of the connector that this is about, if it is about one."""
        text = (key or b"").decode("utf-8", "replace")
        content = _loaded(value)
        for prefix, take in (
            ("connector-", self._connector),
            ("target-state-", self._target_state),
            ("commit-", self._commit),
        ):
            if text.startswith(prefix):
                take(text[len(prefix) :], content)
                return text[len(prefix) :]
        if text.startswith("task-"):
            name, _, number = text[len("task-") :].rpartition("-")
            if name and number.isdigit() and content is not None:
                self._uncommitted.setdefault(name, {})[int(number)] = content.get("properties", {})
        return None

    def _connector(self, name: str, content: dict[str, Any] | None) -> None:
        if content is None:
            for held in (self.connectors, self.target_states, self.tasks, self._uncommitted):
                held.pop(name, None)
        else:
            self.connectors[name] = content.get("properties", {})
            self.target_states.setdefault(name, STARTED)

    def _target_state(self, name: str, content: dict[str, Any] | None) -> None:
        if content is None:
            self.target_states.pop(name, None)
            return
        state = content.get("state.v2") or content.get("state")
        if state in (STARTED, PAUSED, STOPPED):
            self.target_states[name] = state

    def _commit(self, name: str, content: dict[str, Any] | None) -> None:
        if content is None:
            return
        waiting = self._uncommitted.get(name, {})
        count = int(content.get("tasks", 0))
        known = dict(enumerate(self.tasks.get(name, []))) | waiting
        if all(number in known for number in range(count)):
            self.tasks[name] = [known[number] for number in range(count)]
            self._uncommitted.pop(name, None)


def _loaded(value: bytes | None) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        found = json.loads(value)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
