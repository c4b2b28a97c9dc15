"""The status topic: states of connectors and tasks, and the topics that they used. Pure."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from millstream.connect.stores.config_state import Pair


class Status(NamedTuple):
    state: str
    worker_id: str
    generation: int
    trace: str | None = None
    version: str | None = None

    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = {"state": self.state, "worker_id": self.worker_id}
        if self.version is not None:
            found["version"] = self.version
        if self.trace is not None:
            found["trace"] = self.trace
        return found


def connector_status(name: str, status: Status | None) -> Pair:
    return f"status-connector-{name}".encode(), _value(status)


def task_status(name: str, number: int, status: Status | None) -> Pair:
    return f"status-task-{name}-{number}".encode(), _value(status)


class TopicUse(NamedTuple):
    """A topic that a connector has written to or read from (KIP-558)."""

    topic: str
    connector: str
    task: int
    discovered: int


def topic_record(use: TopicUse, *, gone: bool = False) -> Pair:
    key = f"status-topic-{use.topic}:connector-{use.connector}".encode()
    if gone:
        return key, None
    content = {
        "topic": {
            "name": use.topic,
            "connector": use.connector,
            "task": use.task,
            "discoverTimestamp": use.discovered,
        }
    }
    return key, json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def _value(status: Status | None) -> bytes | None:
    if status is None:
        return None
    content = {
        "state": status.state,
        "trace": status.trace,
        "worker_id": status.worker_id,
        "generation": status.generation,
        "version": status.version,
    }
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(slots=True)
class StatusState:
    connectors: dict[str, Status] = field(default_factory=dict)
    tasks: dict[str, dict[int, Status]] = field(default_factory=dict)
    topics: dict[str, dict[str, TopicUse]] = field(default_factory=dict)
    """By connector and topic."""

    def connector_names(self) -> set[str]:
        """All that something is known of."""
        return {*self.connectors, *self.tasks, *self.topics}

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        text = (key or b"").decode("utf-8", "replace")
        status = _read(value)
        if text.startswith("status-connector-"):
            _put(self.connectors, text[len("status-connector-") :], status)
        elif text.startswith("status-task-"):
            name, _, number = text[len("status-task-") :].rpartition("-")
            if name and number.isdigit():
                _put(self.tasks.setdefault(name, {}), int(number), status)
                if not self.tasks[name]:
                    del self.tasks[name]
        elif text.startswith("status-topic-"):
            topic, _, name = text.removeprefix("status-topic-").partition(":connector-")
            self._topic(topic, name, value)

    def _topic(self, topic: str, name: str, value: bytes | None) -> None:
        held = self.topics.setdefault(name, {})
        content: Any = None
        if value is not None:
            with contextlib.suppress(ValueError):
                content = json.loads(value)
        found = content.get("topic") if isinstance(content, dict) else None
        if isinstance(found, dict):
            discovered = int(found.get("discoverTimestamp", 0))
            held[topic] = TopicUse(topic, name, int(found.get("task", 0)), discovered)
        else:
            held.pop(topic, None)
        if not held:
            del self.topics[name]


def _put(held: dict[Any, Status], key: Any, status: Status | None) -> None:
    if status is None:
        held.pop(key, None)
    else:
        held[key] = status


def _read(value: bytes | None) -> Status | None:
    try:
        content = json.loads(value or b"null")
    except ValueError:
        return None
    if not isinstance(content, dict) or "state" not in content:
        return None
    return Status(
        str(content["state"]),
        str(content.get("worker_id", "")),
        int(content.get("generation", 0)),
        content.get("trace"),
        content.get("version"),
    )
