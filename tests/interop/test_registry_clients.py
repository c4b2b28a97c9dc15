"""The Schema Registry with clients of other languages: Node (kafkajs' and Confluent's) and Go (franz-go's
sr)."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.interop_slow
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def registry(bootstrap: str) -> Iterator[str]:
    """The address of a registry on the broker under test."""
    settings = ["--set", "listeners=http://127.0.0.1:0", "--set", f"kafkastore.bootstrap.servers={bootstrap}"]
    command = [sys.executable, "-m", "millstream", "registry", *settings]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"listeners=(\S+)", process.stdout.readline())
        assert found is not None
        yield found[1]
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.timeout(900)
def test_node(registry: str, name: str, tmp_path: Path) -> None:
    if not all(shutil.which(program) for program in ("node", "npm")):
        pytest.skip("needs node and npm")
    for file in ("package.json", "checks.js"):
        shutil.copy(HERE / "registry_node" / file, tmp_path)
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        pytest.skip(f"npm cannot bring the clients: {done.stderr[-300:]}")
    done = subprocess.run(
        ["node", "checks.js", registry, name], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    assert sum(line.startswith("ok ") for line in done.stdout.splitlines()) == 9


@pytest.mark.timeout(900)
def test_go(registry: str, name: str, tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("needs go")
    built = tmp_path / "checks"
    environment = {**os.environ, "GOFLAGS": "-mod=readonly"}
    done = subprocess.run(
        ["go", "build", "-o", str(built), "."],
        cwd=HERE / "registry_go",
        capture_output=True,
        text=True,
        timeout=600,
        env=environment,
    )
    if done.returncode != 0 and ("dial tcp" in done.stderr or "proxy" in done.stderr):
        pytest.skip(f"go cannot bring franz-go: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    done = subprocess.run([str(built), registry, name], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    assert done.stdout.count("ok ") > 20
