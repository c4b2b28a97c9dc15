"""The end of a cogroup: several aggregations of one store become one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.streams.operators.base import Getter, Out, Process, TaskContext


@dataclass(slots=True)
class Cogrouped:
    parts: list[Any]

    def ask_for_old(self, force: bool) -> bool:
        for part in self.parts:
            part.ask_for_old(True)
        return True

    def getter(self) -> Getter:
        found: Getter = self.parts[0].getter()
        return found

    def build(self, task: TaskContext, out: Out) -> Process:
        return out.forward
