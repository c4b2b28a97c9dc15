"""Running `millstream ...` inside the test process (quick), or as a process of its own (for pipes and
signals)."""

import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from millstream.__main__ import main
from millstream.cli import profile_store

PROGRAM = [sys.executable, "-m", "millstream"]


class Done(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture(autouse=True)
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Profiles and data folders of whoever runs the tests are left alone."""
    home = tmp_path_factory.mktemp("home")
    for name in ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(home / name))
    for name in ("MILLSTREAM_DATA_DIR", "MILLSTREAM_CONFIG", "MILLSTREAM_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    profile_store.choose("")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """run("topics", "--list", ...) -> exit code and what was printed. With stdin it is a real process."""

    def call(*arguments: str, stdin: str | bytes | None = None) -> Done:
        if stdin is not None:
            data = stdin.encode() if isinstance(stdin, str) else stdin
            done = subprocess.run([*PROGRAM, *arguments], input=data, capture_output=True, timeout=60)
            return Done(done.returncode, done.stdout.decode(), done.stderr.decode())
        capsys.readouterr()
        code = main(list(arguments))
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return call


@pytest.fixture
def bootstrap(millstream_broker: object) -> str:
    return str(millstream_broker.bootstrap_servers)  # type: ignore[attr-defined]
