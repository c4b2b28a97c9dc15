"""Functions of users in processes of their own, for queries that run inside of the server.

A persistent query runs in a lane, which may be lost; push and pull queries, and INSERT VALUES, run in the
server, which may not. So there a function of a user is called in a child process, by a pipe, each child for
one caller at a time. A call that ends the child, or takes longer than the limit (then the child is ended), is
the end of its query: `FunctionLost`. What a function raises is an exception here as well, and so a null.
Built-in functions are called as ever.

A call costs some 50 microseconds more than it would in the server.
"""

from __future__ import annotations

import os
import pickle
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, BinaryIO

from millstream.sql.functions.table import Aggregate, Function, FunctionTable, Overload
from millstream.sql.functions.user import USER_FUNCTIONS
from millstream.sql.types import Argument

MAX_PROCESSES = 8
START_SECONDS = 60.0
_SIZE = struct.Struct(">I")


class FunctionLost(BaseException):
    """Not an Exception: generated code makes a null of those, and this has to end the query."""


class FunctionFailed(Exception):
    """What the function raised, in its words."""


class _Child:
    def __init__(self, modules: Sequence[str]) -> None:
        command = [sys.executable, "-m", "millstream.sql.functions.isolated", *modules]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
        )
        self.receive(START_SECONDS)  # it is ready

    def send(self, request: Any) -> None:
        data = pickle.dumps(request)
        assert self._process.stdin is not None
        self._process.stdin.write(_SIZE.pack(len(data)) + data)

    def receive(self, seconds: float) -> Any:
        """TimeoutError, or EOFError where the process has ended."""
        deadline = time.monotonic() + seconds
        (size,) = _SIZE.unpack(self._read(_SIZE.size, deadline))
        return pickle.loads(self._read(size, deadline))  # noqa: S301 - of our own child

    def _read(self, size: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        descriptor, found = self._process.stdout.fileno(), b""
        while len(found) < size:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            part = os.read(descriptor, size - len(found))
            if not part:
                raise EOFError
            found += part
        return found

    def end(self) -> int:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        return self._process.wait()

    @property
    def ended_with(self) -> int | None:
        try:
            return self._process.wait(5)
        except subprocess.TimeoutExpired:
            return None


class FunctionProcesses:
    """Children that have imported the same modules. They are started when they are needed, and kept."""

    def __init__(self, modules: Sequence[str], timeout: float) -> None:
        self._modules, self._timeout = tuple(modules), timeout
        self._idle: list[_Child] = []
        self._lock = threading.Lock()
        self._room = threading.Semaphore(MAX_PROCESSES)

    def call(self, name: str, request: Any) -> Any:
        with self._room:
            try:
                child = self._take()
            except (TimeoutError, EOFError, OSError):
                raise FunctionLost(f"function {name}: its process did not start") from None
            try:
                child.send(request)
                failed, answer = child.receive(self._timeout)
            except TimeoutError:
                child.end()
                raise FunctionLost(
                    f"function {name} did not come back within {self._timeout:g} s (ksql.udf.timeout.ms)"
                ) from None
            except (EOFError, OSError):
                status = child.ended_with
                child.end()
                raise FunctionLost(f"function {name} ended its process (status {status})") from None
            with self._lock:
                self._idle.append(child)
        if failed:
            raise FunctionFailed(answer)
        return answer

    def _take(self) -> _Child:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return _Child(self._modules)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for child in idle:
            child.end()


def isolated(processes: FunctionProcesses) -> FunctionTable:
    """All functions; those of users, which are imported already, are called in other processes."""
    from millstream.sql.functions import FUNCTIONS

    found = FUNCTIONS.copy()
    for number, row in enumerate(USER_FUNCTIONS):
        (overload,) = row.overloads
        found.add(replace(row, overloads=(_far(number, row, overload, processes),)))
    return found


def user_names() -> frozenset[str]:
    return frozenset(row.name.upper() for row in USER_FUNCTIONS)


def _far(number: int, row: Function, overload: Overload, processes: FunctionProcesses) -> Overload:
    if overload.aggregate is not None:
        near = overload.aggregate

        def factory(types: Sequence[Argument], values: Sequence[Any], settings: dict[str, Any]) -> Aggregate:
            made = near(types, values, settings)
            which = (number, list(types), list(values), settings)

            def method(name: str) -> Callable[..., Any]:
                return lambda *arguments: processes.call(row.name, (which, name, arguments))

            return replace(
                made,
                initial=method("initial"),
                add=method("add"),
                merge=method("merge"),
                result=None if made.result is None else method("result"),
                undo=None if made.undo is None else method("undo"),
            )

        return replace(overload, aggregate=factory)
    return replace(overload, call=lambda *arguments: processes.call(row.name, (number, "", arguments)))


# --- the child ----------------------------------------------------------------------------------------------


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    aggregates: dict[bytes, Aggregate] = {}
    while True:
        size = requests.read(_SIZE.size)
        if len(size) < _SIZE.size:
            return
        which, name, arguments = pickle.loads(requests.read(_SIZE.unpack(size)[0]))  # noqa: S301
        try:
            if name:
                number, *made_of = which
                key = pickle.dumps(which)
                if key not in aggregates:
                    factory = USER_FUNCTIONS[number].overloads[0].aggregate
                    assert factory is not None
                    aggregates[key] = factory(*made_of)
                act = getattr(aggregates[key], name)
            else:
                act = USER_FUNCTIONS[which].overloads[0].call
            answer = pickle.dumps((False, act(*arguments)))
        except Exception as error:
            answer = pickle.dumps((True, f"{type(error).__name__}: {error}"))
        answers.write(_SIZE.pack(len(answer)) + answer)
        answers.flush()


def main(modules: list[str]) -> None:
    from millstream.sql.functions import isolated as own
    from millstream.sql.functions.loading import load_functions

    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a function prints is no answer
    load_functions(tuple(modules))
    ready = pickle.dumps(None)
    answers.write(_SIZE.pack(len(ready)) + ready)
    answers.flush()
    own._serve(requests, answers)


if __name__ == "__main__":
    main(sys.argv[1:])
