"""The e-bike plant at work: broker, registry, sensors and a Spark pipeline; the broker is killed in the
middle.

Everything runs from this package: a broker and a registry on free ports, sensors that write Avro events, and
`millstream pipeline run examples/ebike/pipeline.py`: an audit trail and windows as Spark DataFrames, and the
same windows as a Streams application that joins the events with a table of stages. Half way through the
broker is killed (kill -9) and started again on its folder. At the end every acknowledged event must be in the
audit trail exactly once, every critical alert in its own partition, and both kinds of windows must add up and
agree; or the demo fails.

    python examples/ebike/demo.py [--seconds 30] [--rate 1000]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from check import account  # noqa: E402
from plant import BY_STAGE, Sensors, create_topics  # noqa: E402
from stages import application  # noqa: E402

from millstream.client import ClientConfig, Cluster, Fetcher, visible_batches  # noqa: E402
from millstream.client.fetch import next_offset  # noqa: E402
from millstream.spark.runner.java import java_problem  # noqa: E402
from millstream.spark.runner.status_records import ENDED, FAILED, RUNNING, Status  # noqa: E402
from millstream.spark.runner.status_topic import StatusTopic  # noqa: E402
from millstream.streams import Streams  # noqa: E402
from millstream.testing import Broker  # noqa: E402
from millstream.wire.errors import KafkaError  # noqa: E402
from millstream.wire.records import iter_records  # noqa: E402

NAME = "ebike"
# Seconds until a wait gives up. A quiet machine needs a tenth of it; a busy one only takes longer.
PATIENCE = 600.0


class Child:
    """A `millstream` command that ends with this process, however this process ends."""

    def __init__(self, arguments: list[str], log: IO[bytes]) -> None:
        command = [sys.executable, "-m", "millstream.testing._child", *arguments]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment
        )

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Watch(threading.Thread):
    """Follows what the pipeline reports and the counts that it writes."""

    def __init__(self, servers: str) -> None:
        super().__init__(name="watch", daemon=True)
        self._config = ClientConfig.of(servers)
        self._end = threading.Event()
        self._at = 0
        self.status: Status | None = None
        self.windows: dict[tuple[str, str], dict[str, Any]] = {}

    def run(self) -> None:
        while not self._end.is_set():
            try:
                self._follow()
            except KafkaError:
                self._end.wait(0.2)  # the broker is away; it comes back

    def _follow(self) -> None:
        with StatusTopic(self._config) as status_topic, Cluster(self._config) as cluster:
            self.status = status_topic.read_all().get(NAME, self.status)
            while not self._end.is_set():
                for about in status_topic.poll(300):
                    if isinstance(about, Status) and about.pipeline == NAME:
                        self.status = about
                for answer in Fetcher(cluster).poll({(BY_STAGE, 0): self._at}, 50):
                    for _, batch in visible_batches(answer, self._at):
                        for record in iter_records(batch):
                            stage, window = (record.key or b"").decode().split("@")
                            row = json.loads(record.value or b"{}")
                            self.windows[stage, window] = {**row, "window": window.split(" ")[1]}
                    self._at = next_offset(answer, self._at)

    def finish(self) -> None:
        self._end.set()
        self.join(10)


def say(text: str) -> None:
    print(text, flush=True)


def figures(sensors: Sensors, watch: Watch, began: float) -> str:
    """One line: what went in, how the queries do, the last windows."""
    parts = [f"{time.monotonic() - began:5.1f} s  {len(sensors.levels):>6,} events sent"]
    for query in watch.status.queries if watch.status else []:
        lag = "?" if query.lag is None else f"{query.lag:,}"
        parts.append(f"{query.name}: lag {lag}, {query.batch_ms:,} ms a batch")
    if watch.windows:
        newest = max(one["window"] for one in watch.windows.values())
        stages = sorted(
            f"{one['stage']} {one['alerts']}{' (too many)' * one['too_many']}"
            for one in watch.windows.values()
            if one["window"] == newest
        )
        parts.append(f"alerts since {newest}: {', '.join(stages)}")
    return "  |  ".join(parts)


def wait_for_pipeline(watch: Watch, child: Child, log: Path) -> None:
    """Until its first batches are through."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        status = watch.status
        if child.process.poll() is not None or (status is not None and status.state == FAILED):
            break
        if status is not None and status.state == RUNNING and all(query.rows for query in status.queries):
            return
        time.sleep(0.1)
    error = watch.status.last_error if watch.status else None
    raise RuntimeError(f"the pipeline did not start: {error}\n{log.read_text()[-3000:]}")


def wait_until_caught_up(sensors: Sensors, watch: Watch, child: Child, log: Path, plant: Streams) -> None:
    """Until all queries have read all that was sent, and Streams has also done what it sent to itself."""
    deadline = time.monotonic() + PATIENCE
    sent = len(sensors.levels) + len(sensors.rubbish)
    while time.monotonic() < deadline:
        if child.process.poll() is not None:
            break
        queries = watch.status.queries if watch.status else []
        done = [
            sum(offset for parts in query.offsets.values() for offset in parts.values()) for query in queries
        ]
        if done and min(done) >= sent and plant.lag() == 0:
            return
        time.sleep(0.1)
    raise RuntimeError(f"the pipeline did not catch up:\n{log.read_text()[-3000:]}")


def start_registry(servers: str, folder: Path) -> tuple[Child, str]:
    path = folder / "registry.log"
    with path.open("wb") as log:
        settings = {"listeners": "http://127.0.0.1:0", "kafkastore.bootstrap.servers": servers}
        arguments = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        child = Child(["registry", *arguments], log)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and child.process.poll() is None:
        found = re.search(r"ready listeners=(\S+)", path.read_text())
        if found:
            return child, found.group(1)
        time.sleep(0.05)
    child.kill()
    raise RuntimeError(f"the registry did not start:\n{path.read_text()[-3000:]}")


def run(seconds: float, rate: int, folder: Path) -> int:
    began = time.monotonic()
    children: list[Child] = []
    settings = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 4}
    with Broker(settings, data_dir=folder / "data", start_timeout=PATIENCE) as broker:
        servers = broker.bootstrap_servers
        say(f"Broker ready on {servers} after {time.monotonic() - began:.1f} s, pid {broker.pid}.")
        try:
            registry, url = start_registry(servers, folder)
            children.append(registry)
            say(f"Schema Registry ready on {url}.")
            create_topics(servers)
            log = folder / "pipeline.log"
            with log.open("wb") as out:
                options = [
                    "--bootstrap-server",
                    servers,
                    "--registry",
                    url,
                    "--checkpoint",
                    str(folder / "pipelines"),
                ]
                child = Child(["pipeline", "run", str(HERE / "pipeline.py"), *options], out)
            children.append(child)
            say(f"Sensors send {rate:,} events a second; the pipeline starts on Spark ...")
            sensors, watch = Sensors(servers, url, rate), Watch(servers)
            sensors.start()
            watch.start()
            wait_for_pipeline(watch, child, log)
            say(f"The pipeline has done its first batches after {time.monotonic() - began:.1f} s.")
            show(sensors, watch, began, seconds / 2)
            say(f"kill -9 {broker.pid}: the broker is gone, in the middle of everything.")
            broker.kill()
            time.sleep(0.5)
            broker.start()
            say(f"Broker started again on the same folder, pid {broker.pid}.")
            show(sensors, watch, began, seconds / 2)
            sensors.finish()
            if sensors.failure is not None:
                raise RuntimeError(f"the sensors failed: {sensors.failure!r}")
            say(f"Sensors stopped after {len(sensors.levels):,} acknowledged events.")
            wait_until_caught_up(sensors, watch, child, log, application(servers, url, str(folder)))
            stop = Child(
                ["pipeline", "stop", NAME, "--bootstrap-server", servers, "--timeout", str(PATIENCE)],
                (folder / "stop.log").open("wb"),
            )
            if stop.process.wait(PATIENCE) != 0 or child.process.wait(PATIENCE) != 0:
                raise RuntimeError(f"the pipeline did not stop cleanly:\n{log.read_text()[-3000:]}")
            watch.finish()
            restarts = watch.status.restarts if watch.status else 0
            ended = watch.status.state if watch.status and watch.status.state in ENDED else "stopped"
            say(f"Pipeline {ended}, {restarts} restarts of its queries.")
            right, wrong = account(servers, url, sensors)
        finally:
            for one in reversed(children):
                if one.process.poll() is None:
                    one.stop()
    for line in right:
        say(f"  ok     {line}")
    for line in wrong:
        say(f"  WRONG  {line}")
    if wrong:
        say("FAILED: the account does not add up.")
        return 1
    say(
        f"Every one of {len(sensors.levels):,} events was accounted for exactly once, across a kill -9 of "
        f"the broker. "
        f"{time.monotonic() - began:.0f} s in all."
    )
    return 0


def show(sensors: Sensors, watch: Watch, began: float, seconds: float) -> None:
    """The live line for so long: rewritten in place on a terminal, every two seconds elsewhere."""
    live = sys.stdout.isatty()
    end = time.monotonic() + seconds
    while time.monotonic() < end and sensors.failure is None:
        time.sleep(0.5 if live else 2.0)
        line = figures(sensors, watch, began)
        if live:
            width = os.get_terminal_size().columns
            print(f"\r{line[:width]:<{width}}", end="", flush=True)
        else:
            say(line)
    if live:
        print()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--seconds", type=float, default=24.0, help="how long to go on after the first batches"
    )
    parser.add_argument("--rate", type=int, default=1000, help="events a second")
    arguments = parser.parse_args()
    problem = java_problem()
    if problem is not None:
        say(f"FAILED: {problem}")
        return 1
    with tempfile.TemporaryDirectory(prefix="millstream-ebike-", ignore_cleanup_errors=True) as folder:
        try:
            return run(arguments.seconds, arguments.rate, Path(folder))
        except RuntimeError as error:
            say(f"FAILED: {error}")
            return 1


if __name__ == "__main__":
    sys.exit(main())
