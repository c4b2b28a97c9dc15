"""What a processor counts and measures: `context.metrics`.

Names are the application's. A running application sums them over its tasks (`RunningStreams.metrics`); the
test driver has those of its task.
"""

from __future__ import annotations

from millstream.streams.errors import StreamsError

MAX_NAMES = 200
"""Of one task: they travel once a second."""


class ProcessorMetrics:
    def __init__(self, values: dict[str, float]) -> None:
        self._values = values

    def add(self, name: str, by: float = 1) -> None:
        """A counter."""
        self._put(name, self._values.get(name, 0) + by)

    def set(self, name: str, value: float) -> None:
        """A gauge."""
        self._put(name, value)

    def record(self, name: str, value: float) -> None:
        """Something that is measured again and again: how often, their sum, and the largest, as `name.count`,
        `name.total` and `name.max`."""
        self.add(f"{name}.count")
        self.add(f"{name}.total", value)
        self._put(f"{name}.max", max(value, self._values.get(f"{name}.max", value)))

    def get(self, name: str) -> float:
        return self._values.get(name, 0)

    def _put(self, name: str, value: float) -> None:
        if name not in self._values and len(self._values) >= MAX_NAMES:
            raise StreamsError(f"a task may have {MAX_NAMES} metrics, and {name} is one more")
        self._values[name] = value
