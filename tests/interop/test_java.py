"""The Java client: programs in java/, compiled here against the client that Maven brings."""

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.interop_slow
SOURCES = Path(__file__).with_name("java")


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    if not all(shutil.which(program) for program in ("mvn", "javac", "java")):
        pytest.skip("needs mvn, javac and java")
    folder = tmp_path_factory.mktemp("java")
    jars = folder / "class-path"
    command = ["mvn", "-B", "-q", "-f", str(SOURCES / "pom.xml"), "dependency:build-classpath"]
    found = subprocess.run(
        [*command, f"-Dmdep.outputFile={jars}"], capture_output=True, text=True, timeout=600
    )
    if found.returncode != 0:
        pytest.skip(f"Maven cannot bring the Java client: {found.stdout[-300:]}")
    sources = [str(source) for source in SOURCES.glob("*.java")]
    compiled = subprocess.run(
        ["javac", "-encoding", "UTF-8", "-d", str(folder), "-cp", jars.read_text(), *sources],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert compiled.returncode == 0, compiled.stderr
    return f"{folder}:{jars.read_text()}"


@pytest.mark.parametrize(
    ("program", "checks"), [("Records", 15), ("Admins", 15), ("Groups", 19), ("Transactions", 14)]
)
@pytest.mark.timeout(600)
def test_the_java_client(class_path: str, bootstrap: str, program: str, checks: int) -> None:
    command = ["java", "-Xmx256m", "-Dfile.encoding=UTF-8", "-cp", class_path, program, bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    print(done.stdout)
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert done.returncode == 0, "\n".join(failed) + done.stderr[-6000:]
    assert done.stdout.count("ok ") >= checks
