"""One service under supervision: start, ready, end, start again after a pause that doubles."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from millstream.up import forking, service_child
from millstream.up.data_folders import ServiceState
from millstream.up.forking import Forked
from millstream.up.services import Service

FIRST_BACKOFF = 0.5
MAX_BACKOFF = 30.0
STEADY_AFTER = 60.0  # seconds after which an earlier failure is forgotten
MAX_LOG_BYTES = 64 * 1024 * 1024
TAIL_BYTES = 65_536


class SupervisedService:
    """The process of a service, and the next one when it ends."""

    def __init__(self, service: Service, command: Sequence[str], log: Path, state: ServiceState) -> None:
        self.service = service
        self.state = state
        self.log = log
        self.was_ready = False
        self._arguments = [",".join(service.preload), *command]
        self._command = [sys.executable, "-m", "millstream.up.service_child", *self._arguments]
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self._released = False
        self._read_to = 0
        self._unread = b""
        self._failures = 0
        self._restart_at = 0.0
        self._ready_at = 0.0

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def start(self) -> None:
        """Load the service; it begins its work when `release` says so."""
        rotate_if_large(self.log)
        with self.log.open("ab") as log:
            self._read_to = log.tell()
            if self.service.forked and forking.possible():
                self._process = Forked(
                    f"ms-{self.service.name}", log, lambda: service_child.main(self._arguments)
                )
            else:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "PYTHONUNBUFFERED": "1"},
                    process_group=0,  # a Ctrl-C is for the supervisor, which stops the services in order
                )
        self._unread = b""
        self._released = False
        self._set_state("waiting")
        self.state.pid = self._process.pid

    def release(self) -> None:
        if self.alive and not self._released:
            self._released = True
            self._write(b"\n")
            self._set_state("starting")

    def poll(self, now: float) -> str:
        """What happened since the last poll: "ready", "ended", "restarted" or ""."""
        process = self._process
        if process is None:
            return ""
        if process.returncode is not None:
            if self.state.state == "pausing" and now >= self._restart_at:
                self.state.restarts += 1
                self.start()
                return "restarted"
            return ""
        code = process.poll()
        if code is not None:
            self._ended(code, now)
            return "ended"
        if self.state.state == "starting" and self._printed_ready():
            self.was_ready = True
            self._ready_at = now
            self._set_state("ready")
            return "ready"
        return ""

    @property
    def pause(self) -> float:
        """Seconds until the next start."""
        return float(min(FIRST_BACKOFF * 2.0 ** max(0, self._failures - 1), MAX_BACKOFF))

    def stop(self) -> None:
        """Ask it to end, and not to be started again."""
        if self.alive:
            self._signal(signal.SIGTERM)
            if not self._released:
                self._close_stdin()  # it waits for its line, and ends without it
        else:
            self._set_state("stopped")

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def ended_by_now(self) -> bool:
        process = self._process
        if process is None or process.poll() is None:
            return process is None
        if self.state.state != "stopped":
            self._close_stdin()
            self.state.pid = None
            self._set_state("stopped")
        return True

    def rotate_log(self) -> None:
        """Keep the log of a service that prints a lot from filling the disk: the older half goes to `.1`. It
        is opened for appending, so the service goes on at the new end by itself."""
        try:
            if self.log.stat().st_size > MAX_LOG_BYTES:
                shutil.copyfile(self.log, self.log.with_suffix(".log.1"))
                os.truncate(self.log, 0)
        except OSError:
            pass

    # --- inside ---------------------------------------------------------------------------------------------

    def _ended(self, code: int, now: float) -> None:
        self._close_stdin()
        self.state.last_end = f"code {code}" if code >= 0 else f"signal {signal_name(-code)}"
        self.state.pid = None
        if self._ready_at and now - self._ready_at > STEADY_AFTER:
            self._failures = 0
        self._ready_at = 0.0
        self._failures += 1
        self._restart_at = now + self.pause
        self._set_state("pausing")

    def _printed_ready(self) -> bool:
        with self.log.open("rb") as log:
            log.seek(self._read_to)
            new = log.read()
        self._read_to += len(new)
        self._unread = (self._unread + new)[-TAIL_BYTES:]
        return self.service.ready.search(self._unread) is not None

    def _set_state(self, state: str) -> None:
        self.state.state = state
        self.state.since = time.time()

    def _write(self, data: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            try:
                os.write(self._process.stdin.fileno(), data)
            except OSError:
                pass  # it has just ended: the next poll will find out

    def _close_stdin(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def rotate_if_large(log: Path) -> None:
    """A log that has grown large over earlier runs becomes `.1`."""
    if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))


def last_lines(log: Path, count: int) -> list[str]:
    """The end of a log, without reading all of it."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - max(TAIL_BYTES, count * 400)))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return lines[-count:] if count else []
