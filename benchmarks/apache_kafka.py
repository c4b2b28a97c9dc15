"""Apache Kafka as a peer: one KRaft node, or several, each in a child process, for benchmarks and for tests
against the original.

    with ApacheKafka() as kafka:
        kafka.bootstrap        # "127.0.0.1:40123"
        kafka.pid              # the java process
        kafka.tool("org.apache.kafka.tools.TopicCommand", "--list", "--bootstrap-server", kafka.bootstrap)

    with ApacheKafka(nodes=3, heap="512m") as kafka:
        kafka.bootstrap        # "127.0.0.1:40123,127.0.0.1:40125,127.0.0.1:40127"
        kafka.nodes[1].kill()  # broker and controller 2; nodes[1].start() brings it back

The jars come from Maven through pom.xml beside this file. Maven runs once: the class path is kept in the
cache folder (~/.cache/millstream, or MILLSTREAM_CACHE) under a name made of pom.xml's hash. Where Java or
Maven is missing or the jars cannot be had, `Unavailable` says why, and whoever asked can skip.

The settings are Kafka's own defaults, except what one node needs (replication factor 1 for internal topics);
every node of a cluster is broker and controller. The JVM flags are those of Kafka's start script. This module
imports nothing beside the standard library, so that tests may load it by path.

    python benchmarks/apache_kafka.py --port 9092 [--nodes 3] [--dir FOLDER] [--set name=value ...]

runs the broker (the further ones on ports of their own) in the foreground until SIGINT or SIGTERM.
"""

import argparse
import base64
import contextlib
import ctypes
import fcntl
import hashlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType, TracebackType

HOST = "127.0.0.1"
POM = Path(__file__).resolve().parent / "pom.xml"
SERVER_CLASS = "kafka.Kafka"
STORAGE_CLASS = "kafka.tools.StorageTool"
OLDEST_JAVA = 17
JVM_FLAGS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
LOGGER_CONFIG = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
"""


class Unavailable(RuntimeError):
    """Apache Kafka cannot be had here; the message says what is missing."""


def cache_folder() -> Path:
    """Where downloads and builds are kept between runs, outside the source tree."""
    own = os.environ.get("MILLSTREAM_CACHE")
    base = (
        Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millstream"
    )
    base.mkdir(parents=True, exist_ok=True)
    return base


def free_port() -> int:
    """A TCP port nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def java_program() -> str:
    """The java to run, new enough for Kafka 4."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        raise Unavailable("no java found (looked at JAVA_HOME, then PATH)")
    try:
        # JAVA_TOOL_OPTIONS makes java print a line of its own first: look for the version line.
        text = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired) as reason:
        raise Unavailable(f"{found} does not run: {reason}") from reason
    quoted = [line.split('"')[1] for line in text.splitlines() if ' version "' in line]
    major = quoted[0].split(".")[0].split("-")[0] if quoted else ""
    if not major.isdigit() or int(major) < OLDEST_JAVA:
        raise Unavailable(
            f"{found} is version {quoted[0] if quoted else 'unknown'}, Kafka 4 needs {OLDEST_JAVA}"
        )
    return found


@contextlib.contextmanager
def _one_at_a_time(lock_file: Path) -> Iterator[None]:
    """Two processes that both find the cache empty must not both fill it."""
    with lock_file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _usable(class_path: str) -> bool:
    return bool(class_path) and all(Path(jar).is_file() for jar in class_path.split(os.pathsep))


def class_path() -> str:
    """The jars of pom.xml as one class path; Maven is asked only when the cached answer is missing or
    stale."""
    folder = cache_folder()
    kept = folder / f"class-path-{hashlib.sha256(POM.read_bytes()).hexdigest()[:16]}.txt"
    with _one_at_a_time(folder / "class-path.lock"):
        if kept.is_file() and _usable(text := kept.read_text().strip()):
            return text
        maven = shutil.which("mvn")
        if maven is None:
            raise Unavailable("no mvn found on PATH, and no class path in the cache")
        fresh = kept.with_suffix(".new")
        command = [
            maven,
            "-B",
            "-q",
            "-f",
            str(POM),
            "dependency:build-classpath",
            f"-Dmdep.outputFile={fresh}",
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        except (OSError, subprocess.TimeoutExpired) as reason:
            raise Unavailable(f"Maven did not answer: {reason}") from reason
        if done.returncode != 0 or not fresh.is_file():
            lines = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
            raise Unavailable(
                f"Maven cannot resolve {POM.name}: {lines[0] if lines else f'exit {done.returncode}'}"
            )
        text = fresh.read_text().strip()
        if not _usable(text):
            raise Unavailable("Maven named jars that do not exist")
        fresh.replace(kept)
        return text


def available() -> str | None:
    """None where Kafka can run, else the reason why not (the text to skip a test with)."""
    try:
        java_program()
        class_path()
    except Unavailable as reason:
        return str(reason)
    return None


def tool(
    main_class: str, *arguments: str, stdin: str | None = None, timeout: float = 120, heap: str = "256m"
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's command line tools to its end and return what it printed."""
    command = [java_program(), f"-Xmx{heap}", *_logger_flags("ERROR"), main_class, *arguments]
    environment = _environment(class_path())
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=timeout, env=environment
    )


def _environment(jars: str) -> dict[str, str]:
    """The class path goes by the environment: as an argument it would fill every process list."""
    return {**os.environ, "CLASSPATH": jars}


def _logger_flags(level: str) -> list[str]:
    config = cache_folder() / f"log4j2-{level.lower()}.properties"
    text = LOGGER_CONFIG.format(level=level)
    if not config.is_file() or config.read_text() != text:
        new = config.with_suffix(f".{os.getpid()}.new")
        new.write_text(text)
        new.replace(config)
    return [f"-Dlog4j2.configurationFile={config.as_uri()}"]


def end_with_parent() -> None:
    """In the child: ask Linux for SIGKILL when the thread that started it ends, so that no JVM outlives a
    killed test."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Node:
    """One process, broker and controller. `start` after `stop` or `kill` serves the same data on the same
    port."""

    def __init__(
        self,
        node_id: int,
        log_dir: Path,
        port: int,
        settings: Mapping[str, str],
        *,
        cluster_size: int = 1,
        cluster_id: str = "",
        heap: str = "1g",
        jvm_flags: tuple[str, ...] = (),
        log_level: str = "WARN",
    ) -> None:
        self.node_id = node_id
        self.log_dir = log_dir
        self.port = port
        self.bootstrap = f"{HOST}:{port}"
        self.settings = dict(settings)
        self._cluster_size = cluster_size
        self._cluster_id = cluster_id
        self._heap = heap
        self._jvm_flags = jvm_flags
        self._log_level = log_level
        self._process: subprocess.Popen[bytes] | None = None
        self.config_file = self.log_dir.parent / f"{self.log_dir.name}-server.properties"
        self.output_file = self.log_dir.parent / f"{self.log_dir.name}-output.txt"

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("Apache Kafka is not running")
        return self._process.pid

    def start(self, timeout: float = 120) -> "Node":
        """Format the folder if it is new, start the JVM, and return when the broker answers and is
        registered."""
        self.launch()
        self.wait_until_serving(timeout)
        return self

    def launch(self) -> None:
        """Start the JVM without waiting (for whoever measures the start)."""
        if self._process is not None:
            raise RuntimeError("Apache Kafka is already running")
        java, jars = java_program(), class_path()
        self.log_dir.mkdir(parents=True, exist_ok=True)
        self.config_file.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))
        self._format()
        heap = (f"-Xmx{self._heap}", f"-Xms{self._heap}")
        command = [java, *heap, *JVM_FLAGS, *self._jvm_flags, *_logger_flags(self._log_level)]
        with self.output_file.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, SERVER_CLASS, str(self.config_file)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=_environment(jars),
                preexec_fn=end_with_parent,
            )

    def _format(self) -> None:
        if (self.log_dir / "meta.properties").exists():
            return
        done = tool(STORAGE_CLASS, "format", "-t", self._cluster_id, "-c", str(self.config_file))
        if done.returncode != 0:
            raise Unavailable(
                f"the folder {self.log_dir} cannot be formatted: {(done.stdout + done.stderr).strip()}"
            )

    def wait_until_serving(self, timeout: float = 120) -> None:
        """Return once a Metadata answer names this broker (and, at the start of a cluster, all others); raise
        with the end of its log when it died or is late."""
        deadline = time.monotonic() + timeout
        while not self._answers():
            if self._process is None or self._process.poll() is not None:
                self._process = None
                raise Unavailable(f"Apache Kafka ended while starting:\n{self.output_tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise Unavailable(f"Apache Kafka did not serve within {timeout:.0f} s:\n{self.output_tail()}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        # Metadata v1 with an empty list of topics: length, key 3, version 1, correlation id, null client id,
        # no topics.
        request = struct.pack(">ihhihi", 14, 3, 1, 7, -1, 0)
        try:
            with socket.create_connection((HOST, self.port), timeout=2) as connection:
                connection.sendall(request)
                with connection.makefile("rb") as stream:
                    size = struct.unpack(">i", stream.read(4))[0]
                    body = stream.read(size)
        except (OSError, struct.error):
            return False
        return len(body) >= 8 and struct.unpack_from(">i", body, 4)[0] >= self._cluster_size

    def output_tail(self, lines: int = 15) -> str:
        """The last lines the JVM printed."""
        if not self.output_file.is_file():
            return ""
        return "\n".join(self.output_file.read_text(errors="replace").splitlines()[-lines:])

    def terminate(self) -> None:
        """SIGTERM, without waiting (for whoever measures the stop)."""
        if self._process is not None:
            self._process.terminate()

    def stop(self, timeout: float = 60) -> None:
        """Clean stop by SIGTERM; SIGKILL only when that takes too long."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


class ApacheKafka:
    """A cluster of one or more nodes. What is asked of the cluster as a whole (`pid`, `port`, `log_dir`,
    `settings`) is that of the first node; a cluster of one is used like its only process."""

    def __init__(
        self,
        log_dir: Path | None = None,
        *,
        port: int | None = None,
        nodes: int = 1,
        settings: Mapping[str, str] | None = None,
        heap: str = "1g",
        jvm_flags: tuple[str, ...] = (),
        log_level: str = "WARN",
    ) -> None:
        self._temporary = None if log_dir is not None else tempfile.TemporaryDirectory(prefix="apache-kafka-")
        self.log_dir = (
            log_dir if log_dir is not None else Path(self._temporary.name if self._temporary else "") / "data"
        )
        ids = range(1, nodes + 1)
        ports = {node_id: port if port and node_id == 1 else free_port() for node_id in ids}
        controllers = {node_id: f"{HOST}:{free_port()}" for node_id in ids}
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # A leading dash would read as an option.
        cluster_id = cluster_id.replace("-", "A")
        self.nodes = []
        for node_id in ids:
            folder = self.log_dir if nodes == 1 else self.log_dir / f"node-{node_id}"
            own = _node_settings(node_id, folder, ports[node_id], controllers)
            self.nodes.append(
                Node(
                    node_id,
                    folder,
                    ports[node_id],
                    {**own, **(settings or {})},
                    cluster_size=nodes,
                    cluster_id=cluster_id,
                    heap=heap,
                    jvm_flags=jvm_flags,
                    log_level=log_level,
                )
            )
        first = self.nodes[0]
        self.port = first.port
        self.bootstrap = ",".join(node.bootstrap for node in self.nodes)
        self.config_file, self.output_file = first.config_file, first.output_file

    @property
    def settings(self) -> dict[str, str]:
        return self.nodes[0].settings

    @settings.setter
    def settings(self, settings: Mapping[str, str]) -> None:
        self.nodes[0].settings = dict(settings)

    @property
    def pid(self) -> int:
        return self.nodes[0].pid

    @property
    def pids(self) -> list[int]:
        """The processes that run."""
        return [node.pid for node in self.nodes if node.running]

    def start(self, timeout: float = 120) -> "ApacheKafka":
        """Start every node and return when each names all of them."""
        self.launch()
        self.wait_until_serving(timeout)
        return self

    def launch(self) -> None:
        for node in self.nodes:
            node.launch()

    def wait_until_serving(self, timeout: float = 120) -> None:
        for node in self.nodes:
            node.wait_until_serving(timeout)

    def output_tail(self, lines: int = 15) -> str:
        return "\n".join(node.output_tail(lines) for node in self.nodes)

    def tool(
        self, main_class: str, *arguments: str, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """As the function `tool`, for whoever holds only the broker."""
        return tool(main_class, *arguments, timeout=timeout)

    def stop(self, timeout: float = 60) -> None:
        """Clean stop. All nodes are told before the first is waited for: the last controllers could not
        hand over, and would wait for each other."""
        for node in self.nodes:
            node.terminate()
        for node in self.nodes:
            node.stop(timeout)

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        for node in self.nodes:
            node.kill()

    def close(self) -> None:
        """Stop, and remove the folder if it was a temporary one. Nobody reads what several nodes have
        written, so that they need not hand over to each other first."""
        if self._temporary is not None and len(self.nodes) > 1:
            self.kill()
        self.stop()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> "ApacheKafka":
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, error_type: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _node_settings(node_id: int, log_dir: Path, port: int, controllers: Mapping[int, str]) -> dict[str, str]:
    """What a node needs to be one; replication factors are those of Kafka where there are three nodes."""
    factor = min(3, len(controllers))
    in_sync = str(max(1, factor - 1))
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(f"{voter}@{where}" for voter, where in controllers.items()),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{controllers[node_id]}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(log_dir.resolve()),
        "offsets.topic.replication.factor": str(factor),
        "transaction.state.log.replication.factor": str(factor),
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": str(factor),
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": "0",
    }


def main() -> int:
    """Run in the foreground."""
    parser = argparse.ArgumentParser(description="Run Apache Kafka (KRaft) in the foreground.")
    parser.add_argument("--port", type=int, help="port of the PLAINTEXT listener (default: a free one)")
    parser.add_argument("--nodes", type=int, default=1, help="processes, each broker and controller")
    parser.add_argument("--dir", type=Path, help="data folder, kept afterwards (default: a temporary one)")
    parser.add_argument("--heap", default="1g", help="JVM heap (default 1g)")
    parser.add_argument("--log-level", default="WARN", help="log4j level of what the broker prints")
    parser.add_argument("--set", action="append", default=[], metavar="name=value", help="a broker setting")
    options = parser.parse_args()
    settings = dict(pair.split("=", 1) for pair in options.set)

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, leave)
    try:
        with ApacheKafka(
            options.dir,
            port=options.port,
            nodes=options.nodes,
            settings=settings,
            heap=options.heap,
            log_level=options.log_level,
        ) as kafka:
            pids = " ".join(map(str, kafka.pids))
            print(f"ready {kafka.bootstrap} pid {pids} output {kafka.output_file}", flush=True)
            while True:
                signal.pause()
    except KeyboardInterrupt:
        return 0
    except Unavailable as reason:
        print(f"unavailable: {reason}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
