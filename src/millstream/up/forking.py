"""Processes of services made by fork: what they have in common is loaded once, by the supervisor, and not by
each.

Loading the libraries of an HTTP service takes longer than all else at its start, and they are the same for
every one of them. A fork is safe while there is a single thread, so that is looked at first; where there are
more, or where fork cannot be trusted with the system's libraries (macOS), a service is started as a program
of its own.
"""

import contextlib
import gc
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import BinaryIO


def load(modules: Iterable[str], stop: Callable[[], bool] = lambda: False) -> None:
    """Load modules that the services will need, until `stop` says that it is not worth it any more."""
    for module in modules:
        if stop():
            return
        with contextlib.suppress(ImportError):  # the service itself will say what is missing
            importlib.import_module(module)
    gc.collect()
    gc.freeze()  # what the services only read stays shared memory


def possible() -> bool:
    if sys.platform != "linux":
        return False
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


class Forked:
    """A child, with the part of Popen that a supervisor needs. The other end of `stdin` is its standard
    input."""

    def __init__(self, name: str, log: BinaryIO, run: Callable[[], int]) -> None:
        read_end, write_end = os.pipe()
        _flush()  # what is not written yet would be written twice
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            os._exit(_run_child(name, read_end, log.fileno(), run))
        os.close(read_end)
        self.stdin = os.fdopen(write_end, "wb", buffering=0)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def _run_child(name: str, stdin: int, log: int, run: Callable[[], int]) -> int:
    """The child's whole life. Nothing of the supervisor's may be kept: its signals, its lock, its sockets."""
    code = 1
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        for source, target in ((stdin, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        for text in os.listdir("/proc/self/fd"):
            if int(text) > 2:
                with contextlib.suppress(OSError):  # the folder that was listed is closed already
                    os.close(int(text))
        sys.stdin = os.fdopen(0, closefd=False)
        sys.stdout, sys.stderr = (
            os.fdopen(number, "w", buffering=1, errors="backslashreplace", closefd=False) for number in (1, 2)
        )
        with contextlib.suppress(OSError), open("/proc/self/comm", "w") as own:
            own.write(name[:15])  # what ps and top show
        code = run()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    _flush()
    return code


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
