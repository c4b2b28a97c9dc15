"""kafkajs: produce and admin, by node/checks.js (what it wrote is read here with confluent-kafka); groups and
transactions, by node/groups.js."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from .clients import Client

pytestmark = pytest.mark.interop_slow
SOURCES = Path(__file__).with_name("node")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not all(shutil.which(program) for program in ("node", "npm")):
        pytest.skip("needs node and npm")
    folder = tmp_path_factory.mktemp("node")
    for file in ("package.json", "checks.js", "groups.js"):
        shutil.copy(SOURCES / file, folder)
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        pytest.skip(f"npm cannot bring kafkajs: {done.stderr[-300:]}")
    return folder


@pytest.mark.timeout(600)
def test_kafkajs(project: Path, bootstrap: str, name: str, clients: Mapping[str, Client]) -> None:
    command = ["node", "checks.js", bootstrap, name]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    assert done.stdout.count("ok ") > 15
    for codec in ("none", "gzip"):
        got = clients["confluent"].consume(f"{name}-records-{codec}", 0, count=205)
        assert [(one.key, one.value) for one in got[:200]] == [
            (b"key %d" % n, b"value %d" % n) for n in range(200)
        ]
        assert list(got[7].headers) == [("n", b"7")]
        assert [(one.key, one.value) for one in got[200:203]] == [
            (None, b"no key"),
            (b"no value", None),
            (b"", b""),
        ]
        assert list(got[203].headers) == [("twice", b"1"), ("twice", b"2"), ("other", b"\x00\xff")]
        assert got[204].value == b"x" * 900_000


@pytest.mark.timeout(600)
def test_kafkajs_groups_and_transactions(project: Path, bootstrap: str, name: str) -> None:
    command = ["node", "groups.js", bootstrap, name]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    assert done.stdout.count("ok ") >= 6
