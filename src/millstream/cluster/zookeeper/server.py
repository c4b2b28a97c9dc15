"""`millstream zookeeper`: a real Apache ZooKeeper, out of the jars that come with PySpark.

This process writes the properties, starts Java and says when ZooKeeper serves; SIGTERM ends both. Java gets
a small heap and the simplest of log4j's loggers, which starts in half the time that the full ones take.
"""

import argparse
import ctypes
import functools
import glob
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

JARS = (
    "zookeeper-3",
    "zookeeper-jute-3",
    "slf4j-api-",
    "log4j-api-",
    "log4j-slf4j2-impl-",
    "snappy-java-",
    "metrics-core-",
    "commons-io-",
    "commons-cli-",
    "audience-annotations-",
    "netty-handler-4",
    "netty-common-",
    "netty-buffer-",
    "netty-transport-4",
    "netty-transport-native-unix-common-",
    "netty-transport-classes-epoll-",
    "netty-codec-4",
    "netty-codec-base-",
    "netty-resolver-4",
)
OPTIONS = (
    "-Xss256k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:MaxMetaspaceSize=64m",
    "-Xlog:disable",
    "-Xlog:all=error:stderr",
    "-Dlog4j2.statusLoggerLevel=OFF",
    "-Dorg.apache.logging.log4j.simplelog.showdatetime=true",
    "-Dorg.apache.logging.log4j.simplelog.showShortLogname=true",
    "-Dorg.apache.logging.log4j.simplelog.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
)
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
DEFAULTS = {
    "dataDir": "zookeeper",
    "clientPort": "2181",
    "tickTime": "2000",
    "initLimit": "10",
    "syncLimit": "5",
    "maxClientCnxns": "0",
    "admin.enableServer": "false",
    # Sessions between 4 s and 60 s, whatever tickTime is: Kafka's default of 18 s lies between.
    "maxSessionTimeout": "60000",
    "autopurge.purgeInterval": "1",
    "4lw.commands.whitelist": "ruok,srvr,stat,mntr",
}
CONFIG_FILE = "millstream-zookeeper.properties"
STOP_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1


class CannotRun(Exception):
    """Why ZooKeeper cannot be started, for the user."""


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not found or not os.access(found, os.X_OK):
        raise CannotRun(
            "ZooKeeper needs Java, which is not installed (apt-get install openjdk-17-jre-headless)"
        )
    return found


def class_path() -> str:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise CannotRun(
            'ZooKeeper comes with PySpark, which is not installed: pip install "millstream[pipelines]"'
        )
    jars = os.path.join(os.path.dirname(spec.origin), "jars")
    found = [path for name in JARS for path in glob.glob(os.path.join(glob.escape(jars), f"{name}*.jar"))]
    if not any(os.path.basename(path).startswith("zookeeper-3") for path in found):
        raise CannotRun(f"there is no ZooKeeper among the jars of PySpark in {jars}")
    return os.pathsep.join(found)


def command(config: str, heap: str = "128m", log_level: str = "WARN") -> list[str]:
    """Java's command line for a ZooKeeper with this file of properties."""
    return [
        java(),
        f"-Xmx{heap}",
        "-Xms16m",
        *OPTIONS,
        f"-Dorg.apache.logging.log4j.simplelog.level={log_level}",
        "-cp",
        class_path(),
        MAIN,
        config,
    ]


def write_config(properties: Mapping[str, str], server_id: int | None) -> str:
    """The file for ZooKeeper, in its data folder, and who of an ensemble this server is."""
    folder = Path(properties["dataDir"]).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if server_id is not None:
            (folder / "myid").write_text(f"{server_id}\n")
        elif any(name.startswith("server.") for name in properties) and not (folder / "myid").exists():
            raise CannotRun(
                f"the properties name an ensemble, and {folder}/myid does not say which server this is: "
                "give --id N"
            )
        config = folder / CONFIG_FILE
        lines = {**properties, "dataDir": str(folder)}
        config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    except OSError as error:
        raise CannotRun(f"the data folder of ZooKeeper cannot be used: {error}") from error
    return str(config)


def client_address(properties: Mapping[str, str], server_id: int | None) -> tuple[str, int]:
    """Where this server serves clients: clientPort, or the last part of its line in an ensemble."""
    host, port = properties.get("clientPortAddress", ""), properties.get("clientPort", "")
    for name, value in properties.items():
        if server_id is not None and name == f"server.{server_id}" and ";" in value:
            host, _, port = value.rpartition(";")[2].rpartition(":")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise CannotRun(f"clientPort is '{port}'; it has to be a port")
    return ("127.0.0.1" if host in ("", "0.0.0.0", "::") else host), int(port)  # noqa: S104


def mode(host: str, port: int) -> str:
    """ "standalone", "leader" or "follower"; empty while it does not serve."""
    try:
        with socket.create_connection((host, port), 2) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while part := connection.recv(4096):
                answer += part
    except OSError:
        return ""
    return next(
        (line[6:] for line in answer.decode(errors="replace").splitlines() if line.startswith("Mode: ")), ""
    )


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="millstream zookeeper",
        description="Run Apache ZooKeeper for several brokers. Needs Java and millstream[pipelines].",
        epilog="Example: millstream zookeeper --set dataDir=/var/lib/zookeeper --set clientPort=2181",
    )
    parser.add_argument("config", nargs="?", metavar="FILE", help="a zookeeper.properties file; --set wins")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="overrides",
        help="one property; can be repeated",
    )
    parser.add_argument(
        "--id", type=int, metavar="N", help="which of the servers of an ensemble this is (myid)"
    )
    parser.add_argument("--heap", default="128m", help="memory for Java (default: 128m)")
    parser.add_argument(
        "--log-level",
        default="WARN",
        choices=("ERROR", "WARN", "INFO", "DEBUG"),
        help="what ZooKeeper logs (default: WARN)",
    )
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    began = time.monotonic()
    arguments = _arguments(argv)
    from millstream.cluster.zookeeper.epochs import catch_up
    from millstream.settings.properties import parse_assignment, read_properties

    try:
        properties = dict(DEFAULTS)
        if arguments.config:
            properties.update(read_properties(arguments.config))
        properties.update(parse_assignment(text) for text in arguments.overrides)
        if ";" in properties.get(f"server.{arguments.id}", "") and properties["clientPort"] == "2181":
            del properties["clientPort"]  # the line of the server says it
        host, port = client_address(properties, arguments.id)
        words = command(write_config(properties, arguments.id), arguments.heap, arguments.log_level)
        if (epochs := catch_up(properties)) is not None:
            print(
                f"millstream zookeeper: the log has changes of epoch {epochs[1]}, and the server's own was "
                f"{epochs[0]}: it was killed as it joined a leader, and goes on from there",
                file=sys.stderr,
            )
    except (CannotRun, OSError, ValueError) as error:
        print(f"millstream zookeeper: {error}", file=sys.stderr)
        return 2
    return _run(words, host, port, began)


def _run(words: list[str], host: str, port: int, began: float) -> int:
    wanted: list[int] = []

    def end(number: int, frame: object) -> None:
        wanted.append(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        # Java must not outlive us, also after kill -9, and not hear of a Ctrl-C before us.
        preexec_fn=functools.partial(_tie, libc) if libc is not None else None,
        process_group=0,
    )
    said_ready = False
    kill_at = 0.0
    while process.poll() is None:
        if wanted:
            if not kill_at:
                kill_at = time.monotonic() + STOP_SECONDS
                process.terminate()
            if time.monotonic() > kill_at or len(wanted) > 1:
                process.kill()
        elif not said_ready and (serving := mode(host, port)):
            said_ready = True
            print(
                f"ready zookeeper={host}:{port} mode={serving} pid={process.pid} "
                f"seconds={time.monotonic() - began:.3f}",
                flush=True,
            )
        try:
            process.wait(0.02 if not said_ready or wanted else 0.5)
        except subprocess.TimeoutExpired:
            continue
    if wanted:
        return 0
    code = process.returncode
    print(
        f"millstream zookeeper: ZooKeeper ended with {f'code {code}' if code >= 0 else f'signal {-code}'}",
        file=sys.stderr,
    )
    return 1


def _tie(libc: ctypes.CDLL) -> None:
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
