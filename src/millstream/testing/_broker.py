"""A broker in a child process, for tests: start, stop, kill, pause, restart.

Ports. Asking the kernel for a free port and passing its number on is a race, and a restart on the same port
is one more: while the broker is away, a client that reconnects in a loop can be given that very port for its
own end. So on Linux the parent binds the port first and keeps it bound, without listening, for as long as the
Broker object lives. There two sockets may share an address while both allow reuse and only one listens;
nobody is given such a port unasked. Elsewhere the broker binds port 0 and tells the port in its `ready` line.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

START_TIMEOUT = 30.0
STOP_TIMEOUT = 30.0
POLL_INTERVAL = 0.005
# As `millstream up` has it: a group forms at once, not after Kafka's three seconds.
QUICK = {"group.initial.rebalance.delay.ms": 100}
LISTENER = re.compile(r"listeners=\S*?://(\[[0-9a-fA-F:]+\]|[^:,\s]+):(\d+)")


class BrokerFailed(Exception):
    """The broker did not start, or did not stop cleanly; the message ends with what it printed."""


class Broker:
    """One Millstream broker. A context manager; or call start() and, at the end, close().

    settings   Kafka's names: {"num.partitions": 3}. They win over what this class sets itself.
    data_dir   a folder of your own, which is kept; otherwise a temporary one, removed by close().
    command    what to run instead of this interpreter's `millstream broker` (the settings are appended).
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        command: list[str] | None = None,
        env: Mapping[str, str] | None = None,
        start_timeout: float = START_TIMEOUT,
    ) -> None:
        self.settings: dict[str, object] = dict(settings or {})
        self.start_timeout = start_timeout
        self._command = command or [sys.executable, "-m", "millstream.testing._child", "broker"]
        self._env = dict(env or {})
        self._temporary = tempfile.TemporaryDirectory(prefix="millstream-", ignore_cleanup_errors=True)
        self._folder = Path(self._temporary.name)
        self.data_dir = Path(data_dir) if data_dir is not None else self._folder / "data"
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._log_path = self._folder / "broker.log"
        self._log_path.touch()
        self._printed_before = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._reserved: socket.socket | None = None
        self._address: tuple[str, int] | None = None
        _alive.add(self)

    # -- what a test wants to know ---------------------------------------------------------------------------

    @property
    def host(self) -> str:
        return self._known_address()[0]

    @property
    def port(self) -> int:
        return self._known_address()[1]

    @property
    def bootstrap_servers(self) -> str:
        host, port = self._known_address()
        return f"{host}:{port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the broker was not started")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """How the last process ended: its exit code, or minus the signal; None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def log(self) -> str:
        """Everything that the broker has printed so far, over all restarts."""
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    # -- life ------------------------------------------------------------------------------------------------

    def start(self, *, wait: bool = True) -> "Broker":
        """Start the broker and, unless `wait` is false, wait until it says that it is ready."""
        if self.running:
            raise RuntimeError("the broker runs already")
        self._printed_before = self._log_path.stat().st_size
        settings = {"log.dirs": self.data_dir, "listeners": self._listener(), **QUICK} | self.settings
        command = list(self._command)
        for name, value in settings.items():
            command += ["--set", f"{name}={_text(value)}"]
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **self._env},
                process_group=0,
            )
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self) -> None:
        deadline = time.monotonic() + self.start_timeout
        while True:
            ended = not self.running
            ready = self._ready_line()
            if ready is not None:
                listener = LISTENER.search(ready)
                if listener is not None:
                    self._address = (listener[1].strip("[]"), int(listener[2]))
                elif self._address is None:
                    raise self._failure(f"the ready line names no listener: {ready!r}")
                return
            if ended:
                raise self._failure(f"the broker ended with {self.returncode} before it was ready")
            if time.monotonic() > deadline:
                self.kill()
                raise self._failure(f"the broker was not ready after {self.start_timeout} s")
            time.sleep(POLL_INTERVAL)

    def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """SIGTERM, then wait. Raises where the broker does not end by itself with code 0."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        self.resume()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._failure(f"the broker had not stopped {timeout} s after SIGTERM") from None
        self._let_go(process)
        if code != 0:
            raise self._failure(f"the broker ended with {code} after SIGTERM")

    def kill(self) -> None:
        """SIGKILL: no goodbye. What the broker had acknowledged must be there after start()."""
        process = self._process
        if process is None:
            return
        process.kill()
        process.wait()
        self._let_go(process)

    def restart(self) -> "Broker":
        """Stop cleanly (where it still runs) and start again: same port, same data."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """SIGSTOP: the process stands still, its connections stay open. resume() wakes it."""
        os.kill(self._running_pid(), signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._running_pid(), signal.SIGCONT)

    def close(self) -> None:
        """End the broker, cleanly if it can, and remove the temporary folder."""
        try:
            self.stop()
        finally:
            self.kill()
            if self._reserved is not None:
                self._reserved.close()
                self._reserved = None
            self._temporary.cleanup()
            _alive.discard(self)

    def __enter__(self) -> "Broker":
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = f"pid {self.pid}" if self.running else "not running"
        where = "" if self._address is None else f" at {self.bootstrap_servers}"
        return f"<Broker{where}, {state}>"

    # -- inside ----------------------------------------------------------------------------------------------

    def _known_address(self) -> tuple[str, int]:
        if self._address is None:
            raise RuntimeError("the broker has no address before its first start")
        return self._address

    def _running_pid(self) -> int:
        if not self.running:
            raise RuntimeError("the broker does not run")
        return self.pid

    def _listener(self) -> str:
        if self._address is not None:
            return f"PLAINTEXT://{self._address[0]}:{self._address[1]}"
        port = 0
        if sys.platform == "linux" and "listeners" not in self.settings:
            self._reserved = socket.socket()
            self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._reserved.bind(("127.0.0.1", 0))
            port = self._reserved.getsockname()[1]
        return f"PLAINTEXT://127.0.0.1:{port}"

    def _ready_line(self) -> str | None:
        with self._log_path.open("rb") as log:
            log.seek(self._printed_before)
            printed = log.read().decode(errors="replace")
        whole_lines = printed[: printed.rfind("\n") + 1].splitlines()
        return next((line for line in whole_lines if re.search(r"\bready\b", line)), None)

    def _let_go(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdin is not None:
            process.stdin.close()

    def _failure(self, what: str) -> BrokerFailed:
        return BrokerFailed(f"{what}\n--- the broker's output ---\n{self.log[-8000:]}")

    def _forked(self) -> None:
        """In a fork of the parent: the broker belongs to the parent alone, and so does what keeps it
        alive."""
        if self._process is not None:
            self._let_go(self._process)
            self._process.returncode = 0
        if self._reserved is not None:
            self._reserved.close()
        self._temporary._finalizer.detach()  # type: ignore[attr-defined]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_alive: "weakref.WeakSet[Broker]" = weakref.WeakSet()


def _after_fork() -> None:
    for broker in list(_alive):
        broker._forked()


os.register_at_fork(after_in_child=_after_fork)
