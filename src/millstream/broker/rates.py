"""Rates with a bound, as Kafka measures them; they know nothing of clients."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping

MAX_ADDRESSES = 10_000


def now_ms() -> float:
    return time.monotonic() * 1000


class Rate:
    """A sum over sliding windows, as Kafka's `Rate`, and its bound."""

    __slots__ = ("_least", "_samples", "_total", "_windows", "bound", "label", "throttled_ms", "window_ms")

    def __init__(self, bound: float, windows: int, window_ms: float, label: str = "") -> None:
        self.bound = bound
        self.window_ms = window_ms
        self.label = label
        self.throttled_ms = 0.0  # in all, for the metrics
        self._windows = windows
        self._least = max(windows - 1, 1) * window_ms / 1000  # seconds that a rate is taken over at least
        self._samples: deque[list[float]] = deque()  # [begin, sum]
        self._total = 0.0  # of the samples, perhaps with some that have left the windows since

    def record(self, value: float, now: float) -> float:
        """Count, and say for how many ms to throttle."""
        samples = self._samples
        if samples and now - samples[-1][0] < self.window_ms:
            samples[-1][1] += value
            self._total += value
        else:
            self._forget(now)
            samples.append([now, value])
            self._total = sum(sample[1] for sample in samples)
        return self.over(now)

    def over(self, now: float) -> float:
        """For how many ms to throttle, so that the rate falls to its bound."""
        if self._total <= self.bound * self._least:
            return 0.0
        rate, elapsed = self._measure(now)
        return (rate - self.bound) / self.bound * elapsed if rate > self.bound else 0.0

    def value(self, now: float) -> float:
        return self._measure(now)[0]

    def idle(self, now: float) -> bool:
        return self._measure(now)[0] == 0.0

    def _measure(self, now: float) -> tuple[float, float]:
        """The rate per second, and the ms that it is taken over."""
        self._forget(now)
        samples, window = self._samples, self.window_ms
        if not samples:
            return 0.0, window
        elapsed = now - samples[0][0]
        full, least = elapsed // window, self._windows - 1
        if full < least:
            elapsed += (least - full) * window
        elapsed = max(elapsed, window)
        return self._total / (elapsed / 1000), elapsed

    def _forget(self, now: float) -> None:
        """Drop the samples that have left the windows."""
        samples, longest = self._samples, self._windows * self.window_ms
        if samples and now - samples[0][0] >= longest:
            while samples and now - samples[0][0] >= longest:
                samples.popleft()
            self._total = sum(sample[1] for sample in samples)


class TokenBucket:
    """For changes of topics: `bound` a second, and as many in one burst as all windows allow (KIP-599)."""

    __slots__ = ("_at", "_capacity", "bound", "label", "throttled_ms", "tokens")

    def __init__(self, bound: float, windows: int, window_ms: float, label: str = "") -> None:
        self.bound = bound
        self.label = label
        self.throttled_ms = 0.0
        self._capacity = bound * windows * window_ms / 1000
        self.tokens = self._capacity
        self._at = now_ms()

    def over(self, now: float) -> float:
        """For how many ms nothing may be taken."""
        self.tokens = min(self._capacity, self.tokens + (now - self._at) / 1000 * self.bound)
        self._at = now
        return -self.tokens / self.bound * 1000 if self.tokens < 0 else 0.0

    def record(self, value: float, now: float) -> float:
        self.over(now)
        self.tokens -= value
        return self.over(now)

    def value(self, now: float) -> float:
        self.over(now)
        return self.tokens

    def idle(self, now: float) -> bool:
        self.over(now)
        return self.tokens >= self._capacity


class ConnectionRates:
    """How many connections a second may be made: from each address, and in all."""

    def __init__(self) -> None:
        self.by_ip: Mapping[str | None, float] = {}
        self.limit = 0.0  # of the broker; 0: none
        self.windows, self.window_ms = 11, 1000.0
        self.throttled = 0
        self._rates: dict[str, Rate] = {}
        self._all: Rate | None = None

    def __bool__(self) -> bool:
        return bool(self.by_ip) or self.limit > 0

    def delay(self, host: str) -> float:
        """Seconds after which a new connection from this address is closed; 0: it may come in."""
        bound = self.by_ip.get(host, self.by_ip.get(None, 0))
        if not bound:
            return 0.0
        now = now_ms()
        rate = self._rates.pop(host, None)
        if rate is None:
            while len(self._rates) >= MAX_ADDRESSES:
                del self._rates[next(iter(self._rates))]
            rate = Rate(bound, self.windows, self.window_ms, host)
        rate.bound = bound
        self._rates[host] = rate
        ms = rate.record(1, now)
        if ms:
            rate.record(-1, now)
            self.throttled += 1
        return min(ms, self.window_ms) / 1000

    def pause(self) -> float:
        """Seconds for which no connection is accepted, after one was."""
        if not self.limit:
            return 0.0
        if self._all is None or self._all.bound != self.limit:
            self._all = Rate(self.limit, self.windows, self.window_ms)
        return self._all.record(1, now_ms()) / 1000
