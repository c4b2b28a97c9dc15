"""How long may one request keep all others waiting?

`make lag`, or `python benchmarks/broker_lag.py [--elements 100000]`.

The broker serves everybody from one loop, so a turn of the loop that takes long is time in which nobody else
is served. For every API that the broker offers, in its newest version, this sends the largest requests that
are legal: each list in the request in turn has very many elements, once all equal and once all different. It
prints the processor time of the longest turn of the loop meanwhile, by API, the worst first. Processor time,
so that a busy machine does not change the figure.

The broker runs on a loop that takes the time of each turn; otherwise it is the broker as it is.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import os
import signal
import sys
import tempfile
import time
import types
import typing
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from millstream.client import Admin, ClientConfig, Cluster, NewTopic
from millstream.client.errors import TimedOut, Unreachable
from millstream.client.messages import API_KEYS, exchange, known_versions
from millstream.testing import Broker
from millstream.wire._kio import entity_writer

LIMIT = 0.050  # seconds of processor time that one request may take from others at a stretch
TOPIC, GROUP = "wide", "group"
PARTITIONS = 100
# These end the sender's own connection or session, or need a peer; they hold nobody up and are not measured.
LEFT_OUT = {"api_versions", "sasl_handshake", "sasl_authenticate"}

_TIMED_LOOP = """
import asyncio, selectors, signal, sys, time, uvloop

class Timed(selectors.EpollSelector):
    longest, began = 0.0, None
    def select(self, timeout=None):
        if self.began is not None:
            took = time.thread_time() - self.began
            if took > self.longest:
                Timed.longest = self.longest = took
                with open(sys.argv[1], "w") as file:
                    file.write(str(took))
        try:
            return super().select(timeout)
        finally:
            self.began = time.thread_time()

timed = Timed()
def forget(*_):
    timed.longest = 0.0
    open(sys.argv[1], "w").close()
signal.signal(signal.SIGUSR1, forget)
uvloop.new_event_loop = lambda: asyncio.SelectorEventLoop(timed)
from millstream.__main__ import main
sys.exit(main(sys.argv[2:]))
"""


# -- the largest requests --------------------------------------------------------------------------


def lists_in(schema: type, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths to all lists in a request, the nested ones too."""
    hints = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        kind = _element(hints[field.name])
        if kind is not None:
            yield (*path, field.name)
            if dataclasses.is_dataclass(kind):
                yield from lists_in(typing.cast(type, kind), (*path, field.name))


def build(schema: type, wide: tuple[str, ...], count: int, distinct: bool, number: int = 0) -> Any:
    """A request in which the list at `wide` has `count` elements, and every other list one."""
    hints = typing.get_type_hints(schema)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(schema):
        hint = hints[field.name]
        element = _element(hint)
        if element is None:
            values[field.name] = _scalar(field.name, _plain(hint), number if distinct else 0)
            continue
        here = wide[:1] == (field.name,)
        rest = wide[1:] if here else ()
        times = count if here and not rest else 1
        values[field.name] = tuple(
            build(element, rest, count, distinct, each)
            if dataclasses.is_dataclass(element)
            else _scalar(field.name, element, each if distinct else 0)
            for each in range(times)
        )
    return schema(**values)


def _element(hint: Any) -> Any:
    """What a list is made of; None if it is no list."""
    if typing.get_origin(hint) is types.UnionType or typing.get_origin(hint) is typing.Union:
        hint = next(each for each in typing.get_args(hint) if each is not type(None))
    return typing.get_args(hint)[0] if typing.get_origin(hint) is tuple else None


def _plain(hint: Any) -> Any:
    if typing.get_origin(hint) is types.UnionType or typing.get_origin(hint) is typing.Union:
        return next(each for each in typing.get_args(hint) if each is not type(None))
    return hint


def _scalar(name: str, kind: Any, number: int) -> Any:
    while hasattr(kind, "__supertype__"):
        kind = kind.__supertype__
    if dataclasses.is_dataclass(kind):
        return build(typing.cast(type, kind), (), 1, False)
    if issubclass(kind, timedelta):
        return kind(milliseconds=1000) if kind is timedelta else kind.parse(timedelta(milliseconds=1000))
    if issubclass(kind, bool):
        return name == "validate_only"
    if issubclass(kind, int):
        if name.endswith(("type", "level")):
            return kind(2) if "resource" in name else kind(0)
        return kind(number % PARTITIONS if "partition" in name or "index" in name else 0)
    if issubclass(kind, float):
        return kind(0)
    if issubclass(kind, uuid.UUID):
        return uuid.UUID(int=number)
    if issubclass(kind, bytes):
        return b""
    if issubclass(kind, str):
        stem = GROUP if "group" in name else "retention.ms" if "config" in name else TOPIC
        return kind(f"{stem}-{number}" if number else stem)
    return kind()


# -- measuring -------------------------------------------------------------------------------------


class Longest:
    """The longest turn of the broker's loop since `forget`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def forget(self, pid: int) -> None:
        os.kill(pid, signal.SIGUSR1)
        time.sleep(0.05)

    def seconds(self) -> float:
        time.sleep(0.02)
        return float(self._path.read_text() or 0)


def worst(cluster: Cluster, broker: Broker, longest: Longest, api: str, count: int) -> tuple[float, str, int]:
    """The longest turn that a request of this API causes, by which list, and the size of that request."""
    result = (0.0, "", 0)
    low, high = cluster.any().versions[API_KEYS[api]]
    version = min(high, known_versions(api)[1])
    form = exchange(api, max(low, version))
    for path in lists_in(form.request) or [()]:
        for distinct in (False, True):
            out = io.BytesIO()
            entity_writer(form.request)(out, build(form.request, path, count, distinct))
            body = out.getvalue()
            longest.forget(broker.pid)
            _send(cluster, form, body)
            name = f"{'.'.join(path)}, {'all different' if distinct else 'all equal'}"
            result = max(result, (longest.seconds(), name, len(body)))
    return result


def _send(cluster: Cluster, form: Any, body: bytes) -> None:
    """A refusal is an answer, and so is a closed connection."""
    connection = cluster.any()
    try:
        connection.send(form.key, form.version, form.flexible, [body])
        connection.receive(120)
    except (Unreachable, TimedOut):
        connection.close()


def measure(elements: int, only: str = "") -> list[tuple[float, str, str, int]]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="millstream-lag-") as name:
        path = Path(name) / "longest"
        path.touch()
        command = [sys.executable, "-c", _TIMED_LOOP, str(path), "broker"]
        with (
            Broker({"auto.create.topics.enable": "false"}, command=command) as broker,
            Cluster(ClientConfig.of(broker.bootstrap_servers)) as cluster,
        ):
            Admin(cluster).create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
            longest = Longest(path)
            offered = cluster.any().versions
            for api in sorted(API_KEYS):
                if API_KEYS[api] in offered and api not in LEFT_OUT and only in api:
                    seconds, which, size = worst(cluster, broker, longest, api, elements)
                    rows.append((seconds, api, which, size))
                    print(f"  {api}: {1000 * seconds:.0f} ms", file=sys.stderr, flush=True)
    return sorted(rows, reverse=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--elements", type=int, default=100_000, help="how long the lists are")
    parser.add_argument("--only", default="", help="a part of the API's name")
    options = parser.parse_args()
    rows = measure(options.elements, options.only)
    print(f"{'longest turn':>12}  {'request':>10}  API, list of {options.elements} elements")
    for seconds, api, which, size in rows:
        mark = "  over the limit" if seconds > LIMIT else ""
        print(f"{1000 * seconds:9.0f} ms  {size / 1e6:7.1f} MB  {api}: {which}{mark}")
    return 1 if any(seconds > LIMIT for seconds, *_ in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
