"""Bars on a screen, nothing in a pipe."""

import os
import pty
import subprocess

from .conftest import PROGRAM


def on_a_screen(*words: str) -> tuple[int, str, str]:
    """The command with a terminal for its error stream and a pipe for its output."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, *words],
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(theirs)
    shown = b""
    try:
        while block := os.read(ours, 65_536):
            shown += block
    except OSError:
        pass  # how a terminal ends whose other side is closed
    os.close(ours)
    out = process.communicate(timeout=60)[0]
    return process.returncode, out, shown.decode(errors="replace")


def test_a_bar_with_rate_and_time_left(bootstrap: str) -> None:
    to = ("--bootstrap-server", bootstrap, "--topic", "on-screen")
    words = [
        "--num-records",
        "1200",
        "--record-size",
        "10",
        "--throughput",
        "1500",
        "--reporting-interval",
        "600000",
    ]
    code, out, shown = on_a_screen("perf", "produce", *to, *words)
    assert code == 0, shown
    assert "producing" in shown
    assert "records/s" in shown
    assert "of 1,200 records" in shown
    assert out.startswith("1200 records sent, ")
    assert len(out.splitlines()) == 1


def test_no_bar_in_a_pipe(bootstrap: str) -> None:
    words = ["perf", "produce", "--bootstrap-server", bootstrap, "--topic", "on-screen"]
    words += ["--num-records", "10", "--record-size", "10"]
    done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
