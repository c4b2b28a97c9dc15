"""Numbers over time, in memory: a point every few seconds, for the last quarter of an hour or so."""

from array import array
from collections import OrderedDict

MAX_POINTS = 450


class Series:
    """The newest points of one line. Two arrays of eight bytes a point, cut from the front now and then."""

    __slots__ = ("_max", "times", "values")

    def __init__(self, limit: int = MAX_POINTS) -> None:
        self._max = limit
        self.times = array("d")
        self.values = array("d")

    def add(self, time: float, value: float) -> None:
        self.times.append(time)
        self.values.append(value)
        if len(self.times) > self._max + 64:
            del self.times[: -self._max]
            del self.values[: -self._max]

    @property
    def last(self) -> float:
        return self.values[-1] if self.values else 0.0

    def points(self) -> tuple[list[float], list[float]]:
        return list(self.times[-self._max :]), list(self.values[-self._max :])


class SeriesTable:
    """Lines by name, the least recently touched of which goes when there are too many."""

    def __init__(self, limit: int) -> None:
        self._max = limit
        self._series: OrderedDict[str, Series] = OrderedDict()

    def add(self, name: str, time: float, value: float) -> None:
        found = self._series.get(name)
        if found is None:
            found = self._series[name] = Series()
            if len(self._series) > self._max:
                self._series.popitem(last=False)
        else:
            self._series.move_to_end(name)
        found.add(time, value)

    def get(self, name: str) -> Series | None:
        return self._series.get(name)

    def remove(self, name: str) -> None:
        self._series.pop(name, None)

    def names(self) -> list[str]:
        return list(self._series)
