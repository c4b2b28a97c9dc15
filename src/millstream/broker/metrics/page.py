"""A page in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable

Sample = tuple[str, float | int]  # labels as text, value


class Page:
    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, name: str, metric_type: str, help: str, samples: Iterable[Sample]) -> None:
        self._lines.append(f"# HELP {name} {help}")
        self._lines.append(f"# TYPE {name} {metric_type}")
        for labels, value in samples:
            self._lines.append(f"{name}{{{labels}}} {value}" if labels else f"{name} {value}")

    def one(self, name: str, metric_type: str, help: str, value: float | int) -> None:
        self.add(name, metric_type, help, [("", value)])

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
