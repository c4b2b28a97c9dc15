"""A process of its own for a host: JVM, planner and lanes, for services that should not carry them.

    host = driver_host(folder)        # in the service; nothing is started yet
    host.add(application, listener)   # starts the driver, or finds the one that another service has started

All services that name the same folder share one driver. The folder says where it listens and what its secret
is (`driver.json`, for its owner only); a lock keeps two services from starting it at once. Each service
leaves the settings that it wants for Spark there (`spark-connect.json`); the driver starts with all of them.
What the driver says goes to `driver.log`.

The driver ends by itself when nobody has been connected for `IDLE_SECONDS`, and when its JVM has ended: the
services notice that their connection is gone, and start another one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from millstream.host.call_server import CallServer
from millstream.host.control import ControlServer, RemoteHost
from millstream.host.link import Link, LinkClosed

log = logging.getLogger("millstream.host")

START_SECONDS = 120.0
IDLE_SECONDS = 10.0
LOOK_SECONDS = 0.2
_ADDRESS, _LOG, _LOCK = "driver.json", "driver.log", "driver.lock"


def driver_host(
    folder: Path, spark_settings: Mapping[str, str] | None = None, *, owner: str = "service"
) -> RemoteHost:
    """The host that services with this folder share. `owner` is the kind of service whose Spark settings
    these are: they replace those that it had."""
    folder.mkdir(parents=True, exist_ok=True)
    settings_file(folder, owner).write_text(json.dumps(dict(spark_settings or {})))
    return RemoteHost(lambda: connect(folder))


def settings_file(folder: Path, owner: str) -> Path:
    return folder / f"spark-{owner}.json"


def spark_settings_in(folder: Path) -> dict[str, str]:
    """Of all services that share the driver."""
    found: dict[str, str] = {}
    for file in sorted(folder.glob(settings_file(folder, "*").name)):
        found |= json.loads(file.read_text())
    return found


def connect(
    folder: Path, command: tuple[str, ...] = (sys.executable, "-m", "millstream.host.driver")
) -> Link:
    """To the driver of this folder, which is started if it does not run."""
    found = _connect(folder)
    if found is not None:
        return found
    with _locked(folder):
        found = _connect(folder)  # another service may have started it meanwhile
        if found is not None:
            return found
        (folder / _ADDRESS).unlink(missing_ok=True)
        with open(folder / _LOG, "ab") as output:
            # A session of its own: Ctrl-C is for the services, which tell the driver by going.
            child = subprocess.Popen(
                [*command, str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        # Whoever has started it hears of its end, however late.
        threading.Thread(target=child.wait, name="host-driver", daemon=True).start()
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            found = _connect(folder)
            if found is not None:
                return found
            if child.poll() is not None:
                raise LinkClosed(f"the driver has ended with {child.returncode}: see {folder / _LOG}")
            time.sleep(0.05)
        child.kill()
        raise LinkClosed(f"the driver has not started within {START_SECONDS:.0f} s: see {folder / _LOG}")


def _connect(folder: Path) -> Link | None:
    try:
        address = json.loads((folder / _ADDRESS).read_text())
        return Link.connect(address["host"], address["port"], bytes.fromhex(address["secret"]))
    except (OSError, ValueError, KeyError, LinkClosed):
        return None


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with open(folder / _LOCK, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def publish(folder: Path, server: CallServer, secret: bytes) -> None:
    """Say where the driver listens. Only its owner may read that."""
    text = json.dumps(
        {"host": server.address, "port": server.port, "secret": secret.hex(), "pid": os.getpid()}
    )
    new = folder / f"{_ADDRESS}.{os.getpid()}"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w") as file:
        file.write(text)
    os.replace(new, folder / _ADDRESS)


def main(folder: Path) -> int:
    """The driver. Ends when nobody needs it any more, or when its JVM has ended."""
    from millstream.host.host import Host
    from millstream.spark.lost import jvm_of
    from millstream.spark.session import spark

    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    session = spark("millstream-host", spark_settings_in(folder))
    secret = secrets.token_bytes(32)
    host = Host.of(session)
    host.stays = host.watched = (
        True  # the process ends by itself, when no service is connected or Spark is gone
    )
    server = ControlServer(host, secret)
    publish(folder, server, secret)
    ended: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: ended.append(number))
    # A JVM that somebody else has started is theirs to watch.
    code = wait_until_unneeded(server, jvm_of(session.sparkContext), ended)
    (folder / _ADDRESS).unlink(missing_ok=True)
    if code is not None:
        log.error(
            "Spark's JVM has ended with %d, and this driver with it: whoever needs it starts another", code
        )
        os._exit(1)  # everything else would wait for the JVM
    server.close()
    host.close()
    session.stop()
    return 0


def wait_until_unneeded(
    server: CallServer, jvm: subprocess.Popen[bytes] | None, ended: Sequence[int]
) -> int | None:
    """Until no service is connected or a signal has come; or until the JVM has ended: its exit code then. A
    driver without its JVM would keep the services waiting for ever."""
    while not ended and server.idle_seconds < IDLE_SECONDS:
        if jvm is not None and (code := jvm.poll()) is not None:
            return code
        time.sleep(LOOK_SECONDS)
    return None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
