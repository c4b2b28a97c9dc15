"""The data folder of one `millstream up`, and the ones that run.

    FOLDER/run/up.lock    held while the supervisor lives: whether it runs is a question to the kernel
    FOLDER/run/up.json    what it runs: written by the supervisor at every change, read by the commands
    FOLDER/logs/*.log     what the services print
    FOLDER/SERVICE/       what a service keeps

A list of the folders in use is kept in ~/.local/state/millstream/up, so that `status` and `down` find one
that is not the default one (--ephemeral) by themselves.
"""

import fcntl
import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

DATA_DIR_VARIABLE = "MILLSTREAM_DATA_DIR"
LOCK_TIMEOUT = 1.0  # a look at the lock (`status`) holds it for a moment


class NotRunning(Exception):
    """No `up` there; the message says where one looked."""


class AlreadyRunning(Exception):
    """The folder is in use by another `up`."""


class SeveralRunning(Exception):
    """More than one `up`, and nobody said which is meant; the message lists them."""

    def __init__(self, homes: "list[DataFolder]") -> None:
        self.homes = homes
        super().__init__("\n".join(f"  {home.path}{_summary(home)}" for home in homes))


@dataclass(slots=True)
class ServiceState:
    name: str
    what: str
    address: str
    state: str = "waiting"  # waiting, starting, ready, pausing (before it is started again), stopped
    pid: int | None = None
    restarts: int = 0
    since: float = 0.0
    last_end: str = ""


@dataclass(slots=True)
class Instance:
    data_dir: str
    pid: int
    version: str
    started: float
    ephemeral: bool = False
    ready: bool = False
    services: list[ServiceState] = field(default_factory=list)


def default_data_dir() -> Path:
    own = os.environ.get(DATA_DIR_VARIABLE)
    if own:
        return Path(own).absolute()
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "millstream"


def _list_folder() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "millstream" / "up"


class DataFolder:
    """A data folder."""

    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir.absolute()
        self.run = self.path / "run"
        self.logs = self.path / "logs"
        self._lock: IO[bytes] | None = None

    def log_of(self, service: str) -> Path:
        return self.logs / f"{service}.log"

    # --- the supervisor's side ------------------------------------------------------------------------------

    def lock(self) -> None:
        """Make the folder ours, or AlreadyRunning."""
        self.run.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(exist_ok=True)
        lock = (self.run / "up.lock").open("ab")
        deadline = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    lock.close()
                    raise AlreadyRunning(str(self.path)) from None
                time.sleep(0.02)
        self._lock = lock
        (self.run / "up.json").unlink(missing_ok=True)

    def publish(self, instance: Instance) -> None:
        new = self.run / "up.json.new"
        new.write_text(json.dumps(asdict(instance), indent=1))
        new.replace(self.run / "up.json")

    def announce(self) -> None:
        """Put the folder on the list of those in use. Nice to have: a list that cannot be written stops
        nobody."""
        try:
            self._entry().parent.mkdir(parents=True, exist_ok=True)
            self._entry().write_text(str(self.path))
        except OSError:
            pass

    def unlock(self) -> None:
        """Give the folder back, if it was ours."""
        if self._lock is None:
            return
        try:
            self._entry().unlink(missing_ok=True)
            (self.run / "up.json").unlink(missing_ok=True)
        except OSError:
            pass
        self._lock.close()
        self._lock = None

    def _entry(self) -> Path:
        return _list_folder() / hashlib.sha256(str(self.path).encode()).hexdigest()[:16]

    # --- everybody else's side ------------------------------------------------------------------------------

    def in_use(self) -> bool:
        try:
            with (self.run / "up.lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def instance(self) -> Instance:
        """What runs there now; NotRunning if nothing does."""
        deadline = time.monotonic() + LOCK_TIMEOUT
        while self.in_use():
            try:
                content = json.loads((self.run / "up.json").read_text())
                services = [ServiceState(**service) for service in content.pop("services")]
                return Instance(**content, services=services)
            except (OSError, ValueError, TypeError, KeyError):
                if time.monotonic() > deadline:
                    raise NotRunning(f"{self.path} is in use, but does not say by what") from None
                time.sleep(0.02)  # it has the lock and is about to write
        raise NotRunning(f"nothing runs in {self.path}")


def running() -> list[DataFolder]:
    """All data folders in use by this user; entries of those that are not are dropped."""
    found = {str(home.path): home for home in [DataFolder(default_data_dir())] if home.in_use()}
    entries = sorted(_list_folder().glob("*")) if _list_folder().is_dir() else []
    for entry in entries:
        try:
            home = DataFolder(Path(entry.read_text()))
            if home.in_use():
                found[str(home.path)] = home
            else:
                entry.unlink(missing_ok=True)
        except OSError:
            continue
    return list(found.values())


def find(data_dir: str) -> DataFolder:
    """The folder that a command is about: the one it names, the one that MILLSTREAM_DATA_DIR names, or the
    only one in use. With several in use no choice would be right for all, so there is none."""
    if data_dir:
        return DataFolder(Path(data_dir))
    default = DataFolder(default_data_dir())
    if os.environ.get(DATA_DIR_VARIABLE) and default.in_use():
        return default
    in_use = running()
    if len(in_use) > 1:
        raise SeveralRunning(in_use)
    return in_use[0] if in_use else default


def is_only_one(home: DataFolder) -> bool:
    """Whether commands find it without being told which one is meant."""
    return [other.path for other in running()] in ([], [home.path])


def _summary(home: DataFolder) -> str:
    try:
        instance = home.instance()
    except NotRunning:
        return ""
    addresses = ", ".join(f"{service.name} {service.address}" for service in instance.services)
    return f" (process {instance.pid}: {addresses})"
