"""The two brokers under test as processes: start, stop, kill, ask what they cost, create and delete topics.

Both are told the same settings and keep their data below the same folder. `Millstream` runs the package of
the current interpreter in a child process, exactly as a user would; `Kafka` is Apache Kafka from
apache_kafka.py.
"""

import contextlib
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from crc32c import crc32c

from apache_kafka import HOST, ApacheKafka, Unavailable, end_with_parent, free_port

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
MB = 1_000_000

# A deleted topic's files go after a second instead of a minute, so that a long run does not fill the disk.
COMMON_SETTINGS = {"log.segment.delete.delay.ms": "1000"}


class Failed(RuntimeError):
    """A broker refused or lost part of a load, or did not do what it was asked: a figure would be worth
    nothing."""


class Broker(Protocol):
    """What the benchmarks need of either broker."""

    name: str
    port: int
    bootstrap: str
    log_dir: Path

    @property
    def pid(self) -> int: ...
    def launch(self) -> None: ...
    def wait_until_serving(self, timeout: float = 120) -> None: ...
    def stop(self, timeout: float = 60) -> None: ...
    def kill(self) -> None: ...


class Millstream:
    """Our broker in a child process."""

    name = "millstream"

    def __init__(self, log_dir: Path, settings: Mapping[str, str] | None = None) -> None:
        self.log_dir = log_dir
        self.port = free_port()
        self.bootstrap = f"{HOST}:{self.port}"
        self.settings = {
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(log_dir.resolve()),
            **COMMON_SETTINGS,
            **(settings or {}),
        }
        self.output_file = log_dir.parent / f"{log_dir.name}-output.txt"
        self._output_start = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the broker is not running")
        return self._process.pid

    def command(self) -> list[str]:
        """What a user would type."""
        pairs = [part for name, value in self.settings.items() for part in ("--set", f"{name}={value}")]
        return [sys.executable, "-m", "millstream", "broker", *pairs]

    def environment(self) -> dict[str, str]:
        """As installed: pip compiles a package, so the byte code of a source tree may be kept too."""
        return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def launch(self) -> None:
        """Start the process without waiting."""
        self.log_dir.mkdir(parents=True, exist_ok=True)
        with self.output_file.open("ab") as output:
            self._output_start = output.tell()
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self.environment(),
                preexec_fn=end_with_parent,
            )

    def wait_until_serving(self, timeout: float = 120) -> None:
        """Return at the line that says `ready`."""
        deadline = time.monotonic() + timeout
        while True:
            with self.output_file.open("rb") as output:
                output.seek(self._output_start)
                printed = output.read()
            if any(b"ready" in line.split() for line in printed.splitlines()):
                return
            if self._process is None or self._process.poll() is not None:
                self._process = None
                text = printed.decode(errors="replace")[-2000:]
                raise Unavailable(f"our broker ended while starting:\n{text}")
            if time.monotonic() > deadline:
                self.kill()
                raise Unavailable(f"our broker was not ready within {timeout:.0f} s")
            time.sleep(0.002)

    def stop(self, timeout: float = 60) -> None:
        """Clean stop by SIGTERM."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Failed(f"our broker did not stop within {timeout:.0f} s of SIGTERM") from None

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


class Kafka(ApacheKafka):
    """Apache Kafka with the same settings."""

    name = "kafka"

    def __init__(self, log_dir: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(log_dir, settings={**COMMON_SETTINGS, **(settings or {})})


def make(name: str, folder: Path, settings: Mapping[str, str] | None = None) -> Broker:
    """A broker that has not been started; its data lie in `folder`/<name>."""
    kinds: dict[str, type[Millstream] | type[Kafka]] = {"millstream": Millstream, "kafka": Kafka}
    return kinds[name](folder / name, settings)


def start(broker: Broker) -> None:
    """Start and wait."""
    broker.launch()
    broker.wait_until_serving()


# ---- what a process costs ----


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and of the children it has waited for."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(ticks) for ticks in after_name[11:15]) / TICKS


def resident_mb(pid: int) -> float:
    """Resident memory, mapped files included."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / MB


def open_files(pid: int) -> int:
    """How many file descriptors the process holds."""
    return len(os.listdir(f"/proc/{pid}/fd"))


# ---- the disk ----


def folder_mb(folder: Path) -> float:
    """Bytes allocated below a folder; files that vanish meanwhile do not count."""
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(base, name)).st_blocks * 512
    return total / MB


def _dirty_mb() -> float:
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return sum(int(fields[name].split()[0]) for name in ("Dirty", "Writeback")) * 1024 / MB


def settle(below_mb: float = 300, timeout: float = 60) -> None:
    """Let the kernel write back what the last run left, so that the next run does not pay for it."""
    deadline = time.monotonic() + timeout
    while _dirty_mb() > below_mb and time.monotonic() < deadline:
        time.sleep(0.1)


def write_back(folder: Path) -> None:
    """Have everything below a folder written to disk now; the broker does not notice, its recovery point
    stays."""
    for base, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                handle = os.open(os.path.join(base, name), os.O_RDONLY)
                try:
                    os.fdatasync(handle)
                finally:
                    os.close(handle)


def require_room(folder: Path, gigabytes: float) -> None:
    """Refuse before a run rather than fill the disk in the middle of it."""
    free = shutil.disk_usage(folder).free / 1e9
    if free < gigabytes + 2:
        raise Unavailable(f"{folder} has {free:.1f} GB free, this run needs {gigabytes + 2:.1f}")


# ---- topics ----


def admin(broker: Broker) -> AdminClient:
    """An admin client that keeps its complaints to itself."""
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})


def create_topic(
    broker: Broker, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None
) -> None:
    """Create a topic and wait until the controller has said yes."""
    client = admin(broker)  # must live until the answer is here
    wanted = NewTopic(topic, partitions, 1, config=dict(config or {}))
    try:
        client.create_topics([wanted])[topic].result(90)
    except (KafkaException, TimeoutError) as error:
        raise Failed(
            f"{broker.name} does not create {topic} with {partitions} partitions: {error!r}"
        ) from error


def delete_topic(broker: Broker, topic: str) -> None:
    """Delete a topic and wait until its bytes have left the disk, for a minute at most: Kafka sometimes keeps
    a folder longer, and `require_room` sees to it that the disk does not fill."""
    client = admin(broker)
    with contextlib.suppress(KafkaException, TimeoutError):
        client.delete_topics([topic])[topic].result(60)
    deadline = time.monotonic() + 60
    prefix = f"{topic}-"
    while time.monotonic() < deadline:
        if not any(path.name.startswith(prefix) for path in broker.log_dir.iterdir()):
            return
        time.sleep(0.05)


# ---- the first acknowledged produce ----


def _batch() -> bytes:
    record = bytes([0, 0, 0, 1, 10]) + b"first" + b"\0"
    body = struct.pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1) + bytes([len(record) * 2]) + record
    return struct.pack(">qiibI", 0, len(body) + 9, -1, 2, crc32c(body)) + body


def _ask(connection: socket.socket, api: int, version: int, body: bytes) -> bytes:
    request = struct.pack(">hhih", api, version, 1, -1) + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    received = bytearray()
    while len(received) < 4 or len(received) < 4 + struct.unpack_from(">i", received)[0]:
        data = connection.recv(65536)
        if not data:
            raise OSError("connection closed")
        received += data
    return bytes(received[8:])


def first_acknowledged_produce(port: int, topic: str, timeout: float = 120) -> None:
    """Knock until the broker is up, let it create `topic` automatically, return when a produce was
    acknowledged.

    Raw bytes, because a client library retries in steps of its own (librdkafka: 100 ms and more).
    """
    name = struct.pack(">h", len(topic)) + topic.encode()
    batch = _batch()
    metadata = struct.pack(">i", 1) + name + b"\x01"  # v4, with automatic creation
    # Version 7.
    produce = struct.pack(">hhii", -1, -1, 30000, 1) + name + struct.pack(">iii", 1, 0, len(batch)) + batch
    error_at = 4 + len(name) + 4 + 4
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((HOST, port), timeout=timeout) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while time.monotonic() < deadline:
                    _ask(connection, 3, 4, metadata)
                    answer = _ask(connection, 0, 7, produce)
                    if struct.unpack_from(">h", answer, error_at)[0] == 0:
                        return
                    time.sleep(0.002)
        except OSError:
            time.sleep(0.002)
    raise Failed(f"no produce was acknowledged on port {port} within {timeout:.0f} s")
