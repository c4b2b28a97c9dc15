"""Latencies and rates, in Kafka's lines."""

import time
from collections import Counter
from typing import Any

MEGABYTE = 1024 * 1024
STEP = 10_000  # parts of a second that latencies are sorted into


class Latencies:
    """A count for each tenth of a millisecond: a percentile is exact to that, and memory does not grow with
    records."""

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0  # seconds
        self.max = 0.0
        self._found: Counter[int] = Counter()

    def add(self, seconds: float, count: int = 1) -> None:
        self.count += count
        self.sum += seconds * count
        if seconds > self.max:
            self.max = seconds
        self._found[int(seconds * STEP)] += count

    @property
    def mean(self) -> float:
        """Milliseconds."""
        return 1000 * self.sum / self.count if self.count else 0.0

    def percentiles(self, *shares: float) -> list[float]:
        """Milliseconds, the nearest rank."""
        ordered = sorted(self._found.items())
        found = []
        for share in shares:
            rank = max(1, int(share * self.count + 0.999999))
            seen = 0
            answer = 0
            for step, count in ordered:
                seen += count
                if seen >= rank:
                    answer = step
                    break
            found.append(answer * 1000 / STEP)
        return found


class ProducerStatistics:
    """What kafka-producer-perf-test counts. `answered` is called for each batch."""

    def __init__(self, name: str = "", interval: float = 0.0) -> None:
        self._name = name
        self._interval = interval
        self.began = time.perf_counter()
        self.bytes = 0
        self.latencies = Latencies()
        self._window = Latencies()
        self._window_bytes = 0
        self._window_began = self.began
        self.ended = self.began

    def answered(self, seconds: float, records: int, size: int) -> None:
        self.latencies.add(seconds, records)
        self.bytes += size
        if self._interval:
            self._window.add(seconds, records)
            self._window_bytes += size

    def window_line(self, now: float) -> str | None:
        """The line of a reporting interval, when one has passed."""
        passed = now - self._window_began
        if not self._interval or passed < self._interval:
            return None
        window = self._window
        line = (
            f"{window.count} records sent, {window.count / passed:.1f} records/sec "
            f"({self._window_bytes / passed / MEGABYTE:.2f} MB/sec), {window.mean:.1f} ms avg latency, "
            f"{window.max * 1000:.1f} ms max latency."
        )
        self._window = Latencies()
        self._window_bytes = 0
        self._window_began = now
        return line

    def end(self) -> None:
        self.ended = time.perf_counter()

    @property
    def seconds(self) -> float:
        return max(self.ended - self.began, 1e-9)

    def line(self) -> str:
        middle, high, higher, highest = self.latencies.percentiles(0.5, 0.95, 0.99, 0.999)
        count = self.latencies.count
        return (
            f"{count}{self._name} records sent, {count / self.seconds:f} records/sec "
            f"({self.bytes / self.seconds / MEGABYTE:.2f} MB/sec), {self.latencies.mean:.2f} ms avg latency, "
            f"{self.latencies.max * 1000:.2f} ms max latency, {middle:.0f} ms 50th, {high:.0f} ms 95th, "
            f"{higher:.0f} ms 99th, {highest:.0f} ms 99.9th."
        )

    def facts(self) -> dict[str, Any]:
        middle, high, higher, highest = self.latencies.percentiles(0.5, 0.95, 0.99, 0.999)
        return {
            "records": self.latencies.count,
            "records_per_second": round(self.latencies.count / self.seconds, 1),
            "megabytes_per_second": round(self.bytes / self.seconds / MEGABYTE, 3),
            "latency_ms": {
                "average": round(self.latencies.mean, 3),
                "max": round(self.latencies.max * 1000, 3),
                "p50": middle,
                "p95": high,
                "p99": higher,
                "p99_9": highest,
            },
        }
