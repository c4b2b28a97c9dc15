"""The end of a cogroup: several aggregations of one store become one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.streams.operators.base import Getter, Out, Process, TaskContext


@dataclass(slots=True)
class Cogrouped:
    aggregates: list[Any]

    def enable_sending_old_values(self, force: bool) -> bool:
        for aggregate in self.aggregates:
            aggregate.enable_sending_old_values(True)
        return True

    def getter(self) -> Getter:
        found: Getter = self.aggregates[0].getter()
        return found

    def build(self, task: TaskContext, out: Out) -> Process:
        return out.forward
