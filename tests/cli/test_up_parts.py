"""The parts of `up` that need no processes of their own."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from millstream.cli.logs import Tail
from millstream.cli.status import duration, resident
from millstream.up import supervised_service
from millstream.up.data_folders import AlreadyRunning, DataFolder, Instance, ServiceState, find
from millstream.up.forking import Forked
from millstream.up.services import Service
from millstream.up.supervised_service import SupervisedService, last_lines
from tests.support.waiting import wait_until


def make_service(folder: Path, script: str) -> SupervisedService:
    service = Service("toy", "a toy", 1, 0, {}, ready=re.compile(rb"ready\n"))
    made = SupervisedService(service, [], folder / "toy.log", ServiceState("toy", "a toy", ""))
    made._command = [sys.executable, "-S", "-c", script]
    return made


def look_until(one: SupervisedService, event: str) -> None:
    wait_until(lambda: one.poll(time.monotonic()) == event, f"not {event}")


def test_the_life_of_a_service(tmp_path: Path) -> None:
    one = make_service(tmp_path, "input(); print('ready', flush=True); input()")
    one.start()
    assert one.state.state == "waiting"
    assert one.poll(time.monotonic()) == ""
    one.release()
    look_until(one, "ready")
    assert one.was_ready
    pid = one.state.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    look_until(one, "ended")
    assert (one.state.state, one.state.last_end, one.state.pid) == ("pausing", "signal SIGKILL", None)
    look_until(one, "restarted")
    assert one.state.restarts == 1
    one.stop()  # not released: the end of its input is enough
    wait_until(one.ended_by_now)
    assert one.state.state == "stopped"


def test_a_forked_service_keeps_nothing_of_its_supervisor(tmp_path: Path) -> None:
    log = tmp_path / "log"
    mine, other = os.pipe()

    def run() -> int:
        line = sys.stdin.readline()
        print(line.strip(), os.getpgrp() == os.getpid(), signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
        try:
            os.fstat(mine)
        except OSError:
            return 7
        return 1

    with log.open("ab") as file:
        child = Forked("toy", file, run)
    assert child.poll() is None
    child.stdin.write(b"begin\n")
    assert ended(child) == 7
    assert log.read_text() == "begin True True\n"
    child.stdin.close()
    with log.open("ab") as file:
        failing = Forked("toy", file, lambda: 1 // 0)
        waiting = Forked("toy", file, lambda: len(sys.stdin.readline()))
    assert ended(failing) == 1
    assert "ZeroDivisionError" in log.read_text()
    waiting.send_signal(signal.SIGTERM)
    assert ended(waiting) == -signal.SIGTERM
    for one in (mine, other):
        os.close(one)
    failing.stdin.close()
    waiting.stdin.close()


def ended(child: Forked) -> int:
    wait_until(lambda: child.poll() is not None)
    code = child.poll()
    assert code is not None
    return code


def test_pauses_double_and_have_a_longest(tmp_path: Path) -> None:
    one = make_service(tmp_path, "")
    pauses = []
    for failures in range(1, 12):
        one._failures = failures
        pauses.append(one.pause)
    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0]
    assert pauses[-1] == supervised_service.MAX_BACKOFF


def test_logs_do_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised_service, "MAX_LOG_BYTES", 100)
    one = make_service(tmp_path, "")
    one.log.write_text("x" * 200)
    one.rotate_log()
    assert one.log.stat().st_size == 0
    assert (tmp_path / "toy.log.1").stat().st_size == 200
    one.log.write_text("y" * 200)
    supervised_service.rotate_if_large(one.log)
    assert not one.log.exists()
    assert (tmp_path / "toy.log.1").read_text() == "y" * 200


def test_a_folder_has_one_owner(tmp_path: Path) -> None:
    mine, other = DataFolder(tmp_path), DataFolder(tmp_path)
    mine.lock()
    mine.publish(Instance(str(tmp_path), os.getpid(), "0", 0.0, services=[ServiceState("a", "b", "c")]))
    mine.announce()
    with pytest.raises(AlreadyRunning):
        other.lock()
    other.unlock()  # it has nothing to leave
    assert other.instance().services[0].address == "c"
    assert find("").path == tmp_path
    mine.unlock()
    other.lock()
    other.unlock()


def test_tails(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(b"".join(b"line %d\n" % number for number in range(20_000)))
    tail, whole = Tail("a", file, 2), Tail("a", file, 0)
    assert tail.new_lines() == [b"line 19998", b"line 19999"]
    with file.open("ab") as out:
        out.write(b"more\nand a ha")
        out.flush()
        assert tail.new_lines() == [b"more"]
        out.write(b"lf\n")
        out.flush()
        assert tail.new_lines() == [b"and a half"]
    file.write_bytes(b"cut\n")
    assert tail.new_lines() == [b"cut"]
    assert whole.new_lines() == [b"cut"]
    tail.close()
    whole.close()
    assert last_lines(file, 3) == ["cut"]
    assert last_lines(tmp_path / "missing", 3) == []


def test_memory_counts_the_processes_below() -> None:
    """As ZooKeeper runs: a small process of ours that waits for a large one."""
    large = "held = bytearray(b'x' * 100_000_000); print('ready', flush=True); input()"
    small = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {large!r}])"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-S", "-c", small], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        memory = resident(process.pid)
        process.communicate(b"\n")
    if sys.platform == "linux":
        assert memory is not None
        assert memory > 100
    assert resident(process.pid) is None


def test_durations() -> None:
    assert [duration(s) for s in (-1, 3.2, 61, 7_300, 200_000)] == ["0 s", "3 s", "1 min", "2 h", "2 d"]
