"""franz-go: produce, consume by assignment and in groups, transactions and admin, by the programs in go/."""

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.interop_slow
SOURCES = Path(__file__).with_name("go")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("go") is None:
        pytest.skip("needs go")
    built = tmp_path_factory.mktemp("go") / "checks"
    command = ["go", "build", "-o", str(built), "."]
    done = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, timeout=600)
    if done.returncode != 0 and ("dial tcp" in done.stderr or "proxy" in done.stderr):
        pytest.skip(f"go cannot bring franz-go: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    return built


@pytest.mark.timeout(600)
def test_franz_go(program: Path, bootstrap: str) -> None:
    done = subprocess.run([str(program), bootstrap], capture_output=True, text=True, timeout=300)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    assert done.stdout.count("ok ") > 25
