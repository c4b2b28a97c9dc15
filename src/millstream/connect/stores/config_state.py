"""The config topic: its records, and what they come to. Pure.

connector-x      {"properties": {...}}              a connector's settings
task-x-0         {"properties": {...}}              a task's settings, which count with the next commit
commit-x         {"tasks": n}                       the task settings since the last commit count now
target-state-x   {"state": ..., "state.v2": ...}    STARTED, PAUSED or STOPPED (KIP-875)
restart-connector-x  {"include-tasks": ..., "only-failed": ...}   for the workers that run it (KIP-745)
tasks-fencing-x  {"task-count": n}                  how many tasks of a source have been fenced (KIP-618)
redrive-x        {"topic": ..., "until": {...}}     ours: dead letters to be read again, up to there
logger-cluster-x {"level": ...}                     a log level for all workers (KIP-976)
session-key      read and kept out of the way

The settings that tasks run with are those that the connector had when its tasks were committed: a change of
settings restarts them once, when the connector has dealt anew.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from millstream.connect.config.config_def import given
from millstream.connect.runtime.redrive import Redrive

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


def restart_record(name: str, *, include_tasks: bool, only_failed: bool) -> Pair:
    content = {"include-tasks": include_tasks, "only-failed": only_failed}
    return f"restart-connector-{name}".encode(), _json(content)


def fencing_record(name: str, count: int) -> Pair:
    return f"tasks-fencing-{name}".encode(), _json({"task-count": count})


def logger_record(logger: str, level: str) -> Pair:
    return f"logger-cluster-{logger}".encode(), _json({"level": level})


def redrive_record(name: str, redrive: Redrive | None) -> Pair:
    value = None
    if redrive is not None:
        ends = {str(number): end for number, end in redrive.until}
        where = {"where": redrive.where} if redrive.where else {}
        value = _json({"topic": redrive.topic, "until": ends, **where})
    return f"redrive-{name}".encode(), value


class Restart(NamedTuple):
    connector: str
    include_tasks: bool
    only_failed: bool


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(slots=True)
class ConfigState:
    connectors: dict[str, dict[str, str]] = field(default_factory=dict)
    target_states: dict[str, str] = field(default_factory=dict)
    tasks: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    """Of each connector, as its last commit says."""
    applied: dict[str, dict[str, str]] = field(default_factory=dict)
    """The settings that each connector had at that commit."""
    fenced: dict[str, int] = field(default_factory=dict)
    loggers: dict[str, str] = field(default_factory=dict)
    redrives: dict[str, Redrive] = field(default_factory=dict)
    restarts: list[Restart] = field(default_factory=list)
    """Asked for, and not yet taken."""
    _uncommitted: dict[str, dict[int, dict[str, str]]] = field(default_factory=dict)

    def apply(self, key: bytes | None, value: bytes | None) -> str | None:
        """Returns the name of the connector that this is about, if it is about one."""
        text = (key or b"").decode("utf-8", "replace")
        content = _loaded(value)
        for prefix, take in (
            ("connector-", self._connector),
            ("target-state-", self._target_state),
            ("commit-", self._commit),
            ("restart-connector-", self._restart),
            ("tasks-fencing-", self._fencing),
            ("redrive-", self._redrive),
        ):
            if text.startswith(prefix):
                take(text[len(prefix) :], content)
                return text[len(prefix) :]
        if text.startswith("logger-cluster-") and content is not None:
            self.loggers[text.removeprefix("logger-cluster-")] = str(content.get("level", ""))
        elif text.startswith("task-"):
            name, _, number = text[len("task-") :].rpartition("-")
            if name and number.isdigit() and content is not None:
                self._uncommitted.setdefault(name, {})[int(number)] = given(content.get("properties", {}))
        return None

    def _connector(self, name: str, content: dict[str, Any] | None) -> None:
        if content is None:
            for held in (self.connectors, self.target_states, self.tasks, self.applied, self._uncommitted):
                held.pop(name, None)
        else:
            # A worker in Java may have let nulls pass.
            self.connectors[name] = given(content.get("properties", {}))
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
            if name in self.connectors:
                self.applied[name] = self.connectors[name]
            # A new deal: what was fenced before counts no more.
            self.fenced.pop(name, None)

    def _restart(self, name: str, content: dict[str, Any] | None) -> None:
        if content is not None:
            flags = content.get("include-tasks") is True, content.get("only-failed") is True
            self.restarts.append(Restart(name, *flags))

    def _redrive(self, name: str, content: dict[str, Any] | None) -> None:
        self.redrives.pop(name, None)
        if content is not None:
            until = {int(number): int(end) for number, end in content.get("until", {}).items()}
            self.redrives[name] = Redrive(
                str(content.get("topic")), tuple(sorted(until.items())), str(content.get("where", ""))
            )

    def _fencing(self, name: str, content: dict[str, Any] | None) -> None:
        if content is None:
            self.fenced.pop(name, None)
        else:
            self.fenced[name] = int(content.get("task-count", 0))


def _loaded(value: bytes | None) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        found = json.loads(value)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
