"""Running `millstream ...` inside the test process. Tests of pipes and signals start `PROGRAM` instead."""

import sys
import tempfile
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
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """run("topics", "--list", ...) -> exit code and what was printed."""

    def call(*arguments: str, stdin: str | bytes = b"") -> Done:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        capsys.readouterr()
        with tempfile.TemporaryFile("r+") as given, monkeypatch.context() as patched:
            given.buffer.write(data)
            given.seek(0)
            patched.setattr(sys, "stdin", given)
            code = main(list(arguments))
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return call


@pytest.fixture
def bootstrap(millstream_broker: object) -> str:
    return str(millstream_broker.bootstrap_servers)  # type: ignore[attr-defined]
