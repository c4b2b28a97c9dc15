"""How long may one request keep all others waiting?

`make lag`, or `python benchmarks/broker_lag.py [--elements 100000]`.

The broker serves everybody from one loop, so a turn of the loop that takes long is time in which nobody else
is served. For every API that the broker offers, in its newest version, this sends the largest requests that
are legal (`largest.py`). It prints the processor time of the longest turn of the loop meanwhile, by API, the
worst first. Processor time, so that a busy machine does not change the figure.

The broker runs on a loop that takes the time of each turn; otherwise it is the broker as it is.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from largest import PARTITIONS, TOPIC, largest_requests
from millstream.client import Admin, ClientConfig, Cluster, NewTopic
from millstream.client.errors import TimedOut, Unreachable
from millstream.client.messages import API_KEYS, exchange, known_versions
from millstream.testing import Broker
from millstream.wire._kio import entity_writer

LIMIT = 0.050  # seconds of processor time that one request may take from others at a stretch
# These end the sender's own connection or session, or need a peer; they hold nobody up and are not measured.
# Rights, tokens and the metrics of clients are work, too.
SETTINGS = {
    "auto.create.topics.enable": "false",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "millstream.metrics.listener": "127.0.0.1:0",
}
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
    for largest in largest_requests(form.request, count):
        out = io.BytesIO()
        entity_writer(form.request)(out, largest.request)
        body = out.getvalue()
        longest.forget(broker.pid)
        _send(cluster, form, body)
        result = max(result, (longest.seconds(), largest.name, len(body)))
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
            Broker(SETTINGS, command=command) as broker,
            Cluster(ClientConfig.of(broker.bootstrap_servers)) as cluster,
        ):
            Admin(cluster).create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
            longest = Longest(path)
            offered = cluster.any().versions
            for api in sorted(API_KEYS):
                wanted = any(part in api for part in only.split(","))
                if wanted and API_KEYS[api] in offered and api not in LEFT_OUT:
                    seconds, which, size = worst(cluster, broker, longest, api, elements)
                    rows.append((seconds, api, which, size))
                    print(f"  {api}: {1000 * seconds:.0f} ms", file=sys.stderr, flush=True)
    return sorted(rows, reverse=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--elements", type=int, default=100_000, help="how long the lists are")
    parser.add_argument("--only", default="", help="parts of the names of APIs: acls,fetch")
    options = parser.parse_args()
    rows = measure(options.elements, options.only)
    print(f"{'longest turn':>12}  {'request':>10}  API, list of {options.elements} elements")
    for seconds, api, which, size in rows:
        mark = "  over the limit" if seconds > LIMIT else ""
        print(f"{1000 * seconds:9.0f} ms  {size / 1e6:7.1f} MB  {api}: {which}{mark}")
    return 1 if any(seconds > LIMIT for seconds, *_ in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
