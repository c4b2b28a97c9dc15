"""What happens to the broker: kill -9, also while it starts, standing still, and what a crash leaves behind
in its files."""

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

from millstream.testing import Broker

HEADER = 61  # bytes of a batch before its records
LENGTH_AT, LENGTH_END = 8, 12


class Chaos:
    """Breaks a broker, again and again, in ways that depend on the seed alone."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self.broker = broker
        self.random = random.Random(f"{seed} chaos")
        self.kills = 0
        self.pauses = 0
        self.damages = 0

    @property
    def done(self) -> int:
        return self.kills

    def wait(self, longest: float) -> None:
        # Things go wrong at any moment.
        time.sleep(self.random.uniform(0.05, longest))

    def once(self) -> None:
        """One thing that goes wrong. The broker runs again when it returns."""
        choice = self.random.random()
        if choice < 0.2:
            self.pause()
            return
        if choice < 0.3:
            self.broker.pause()
            self.pauses += 1
            self.wait(0.5)
        self._kill()
        while self.random.random() < 0.15:  # once more, in the middle of its recovery
            self.broker.start(wait=False)
            self.wait(0.6)
            self._kill()
        self.broker.start()

    def pause(self) -> None:
        self.broker.pause()
        self.pauses += 1
        self.wait(1.5)
        self.broker.resume()

    def _kill(self) -> None:
        self.broker.kill()
        self.kills += 1
        if self.random.random() < 0.5:
            self.damage()

    def damage(self) -> None:
        """As if the machine had been writing when it died: something behind the last whole batch of some
        logs."""
        folders = sorted(path for path in self.broker.data_dir.iterdir() if _is_partition(path))
        for folder in self.random.sample(folders, min(len(folders), 6)):
            segments = sorted(folder.glob("*.log"))
            if segments:
                self.random.choice(DAMAGES)(segments[-1], self.random)
                self.damages += 1


def _is_partition(path: Path) -> bool:
    return path.is_dir() and path.name.rpartition("-")[2].isdecimal()


def junk(segment: Path, source: random.Random) -> None:
    _append(segment, source.randbytes(source.randint(1, 3000)))


def zeros(segment: Path, source: random.Random) -> None:
    _append(segment, bytes(source.randint(1, 20_000)))


def half_a_batch(segment: Path, source: random.Random) -> None:
    """The beginning of the batch that would have been next: the last one again, with the next offset."""
    last = last_batch(segment)
    if last is None:
        return
    content, next_offset = last
    batch = next_offset.to_bytes(8, "big") + content[8:]
    _append(segment, batch[: source.randint(1, len(batch) - 1)])


def spoilt_batch(segment: Path, source: random.Random) -> None:
    """A batch of full length with the right offset, in which one byte did not make it to the disk."""
    last = last_batch(segment)
    if last is None:
        return
    content, next_offset = last
    batch = bytearray(next_offset.to_bytes(8, "big") + content[8:])
    batch[source.randrange(HEADER, len(batch))] ^= 0xFF
    _append(segment, bytes(batch))


DAMAGES: tuple[Callable[[Path, random.Random], None], ...] = (junk, zeros, half_a_batch, spoilt_batch)


def _append(segment: Path, data: bytes) -> None:
    with segment.open("ab") as file:
        file.write(data)


def last_batch(segment: Path) -> tuple[bytes, int] | None:
    """The last whole batch of a segment, and the offset that comes next."""
    content = segment.read_bytes()
    at, found = 0, None
    while at + HEADER <= len(content):
        size = LENGTH_END + int.from_bytes(content[at + LENGTH_AT : at + LENGTH_END], "big", signed=True)
        if size < HEADER or at + size > len(content) or content[at + 16] != 2:
            break
        found = (at, size)
        at += size
    if found is None:
        return None
    batch = content[found[0] : found[0] + found[1]]
    base = int.from_bytes(batch[:8], "big")
    return batch, base + int.from_bytes(batch[23:27], "big") + 1


def cut(segment: Path, at: int) -> None:
    """The file ends at this byte now."""
    os.truncate(segment, at)
