"""Apache Kafka's own integration tests against this broker: `python tests/interop/kafka_suite/run.py [--only
TEXT]`.

The tests are the compiled ones of Kafka's release (see build.py). Whatever starts a cluster in them starts
`millstream broker` from the source tree this file lies in: one process, which stands for all brokers of the
test, or, for a class that classes.txt marks with `+`, a process for each broker, with the ZooKeeper that this
program starts. Whatever they ask the inside of a broker is asked over the wire, or aborts the test.
classes.txt says which classes run, and which methods cannot pass and why. Each class has a JVM of its own.

One line for each class, then the failures that nobody expects. Ends with 1 where there are any, with 2 where
Maven or Java cannot be had. What the JVM and the brokers wrote is kept in the folder that the last line
names, if something failed.
"""

import argparse
import collections
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.interop.kafka_suite.build import ROOT, Suite, Unavailable, build
from tests.support.zookeeper import RunningZooKeeper

CLASSES = Path(__file__).resolve().parent / "classes.txt"
STANDINS = Path(__file__).resolve().parent / "standins.py"
TEST_LIMIT = 60  # seconds for one test, where Kafka does not say otherwise
TEST_LIMIT_OF_SEVERAL = 180  # the same, where brokers are stopped and started again
OPEN = ("java.lang", "java.util", "java.nio", "java.util.concurrent")  # Kafka's build opens these for Mockito
FEED = re.compile(
    r"JUnit Jupiter > (?P<class>\w+)(?: > (?P<method>\w+).*)? :: (?P<end>STARTED|SUCCESSFUL|FAILED|ABORTED)$"
)


@dataclass
class Listed:
    """A line of classes.txt with those below it: the methods that run if not all do, those that are left out,
    and those that may fail."""

    name: str
    several_brokers: bool = False
    only: set[str] = field(default_factory=set)
    left_out: set[str] = field(default_factory=set)
    may_fail: set[str] = field(default_factory=set)

    @property
    def mark(self) -> str:
        return "+" if self.several_brokers else ""


@dataclass
class Outcome:
    """How the tests of a class ended: the failures with their first line, by method."""

    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    failed: list[tuple[str, str]] = field(default_factory=list)

    def unexpected(self, given: Listed) -> list[tuple[str, str]]:
        return [(method, why) for method, why in self.failed if method not in given.may_fail]


def listed(text: str) -> list[Listed]:
    """The classes of the list, behind `+` where each broker of a test is a process. A method stands below its
    class, behind `=` (only such run), `-` (left out) or `~` (may fail)."""
    found: list[Listed] = []
    for line in text.splitlines():
        word = line.partition("#")[0].strip()
        if word.startswith("="):
            found[-1].only.add(word[1:].strip())
        elif word.startswith("-"):
            found[-1].left_out.add(word[1:].strip())
        elif word.startswith("~"):
            found[-1].may_fail.add(word[1:].strip())
        elif word:
            found.append(Listed(word.removeprefix("+"), several_brokers=word.startswith("+")))
    return found


def read_feed(text: str) -> Outcome:
    """What JUnit's console wrote, line by line as tests end. A test that began and did not end has failed."""
    outcome, running = Outcome(), collections.Counter[str]()
    lines = text.splitlines()
    for at, line in enumerate(lines):
        # searched for, not matched: tests print, and not always whole lines
        if (seen := FEED.search(line)) is None:
            continue
        method, end = seen["method"] or "(the class)", seen["end"]
        if end == "STARTED":
            running[method] += 1
            continue
        running[method] -= 1
        outcome.counts[end] += 1
        if end == "FAILED":
            outcome.failed.append((method, lines[at + 1].strip()[:160] if at + 1 < len(lines) else ""))
    for method in (+running).elements():
        outcome.failed.append((method, "did not end in time"))
        outcome.counts["FAILED"] += 1
    return outcome


def run_class(suite: Suite, given: Listed, limit: float, folder: Path, zookeeper: str = "") -> Outcome:
    """One JVM for one class. Its brokers are in its process group, so that none of them outlives it."""
    folder.mkdir(parents=True)
    junit = ["execute", "--disable-banner", "--disable-ansi-colors", "--details=testfeed", "-c", given.name]
    junit += ["--fail-if-no-tests", "--config", "junit.jupiter.extensions.autodetection.enabled=true"]
    if given.only:
        junit.append(f"--include-methodname=.*#({'|'.join(sorted(given.only))})")
    if given.left_out:
        junit.append(f"--exclude-methodname=.*#({'|'.join(sorted(given.left_out))})")
    command = [suite.java, "-Xmx2g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPEN]
    command += [
        f"-Djava.io.tmpdir={folder}",
        f"-Dlog4j2.configurationFile={suite.logger.as_uri()}",
        f"-Dmillstream.python={sys.executable}",
        f"-Dmillstream.standins={STANDINS}",
        f"-Dmillstream.folders={folder}",
        f"-Dmillstream.zookeeper={zookeeper}",
        f"-Djunit.jupiter.execution.timeout.default={TEST_LIMIT_OF_SEVERAL if zookeeper else TEST_LIMIT} s",
        # a test that hangs in a call that cannot be interrupted must not hold up the rest
        "-Djunit.jupiter.execution.timeout.thread.mode.default=SEPARATE_THREAD",
        "org.junit.platform.console.ConsoleLauncher",
        *junit,
    ]
    environment = {**os.environ, "CLASSPATH": suite.class_path, "PYTHONPATH": str(ROOT / "src")}
    feed = folder / "console.txt"
    with feed.open("wb") as out, (folder / "jvm.txt").open("wb") as errors:
        jvm = subprocess.Popen(
            command, stdout=out, stderr=errors, env=environment, cwd=folder, start_new_session=True
        )
        try:
            code = jvm.wait(limit)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(jvm.pid, signal.SIGKILL)
            jvm.wait()
    outcome = read_feed(feed.read_text(errors="replace"))
    if code and not outcome.failed:
        why = f"no end within {limit:.0f} s" if code == -1 else f"JUnit ended with {code}"
        outcome.failed.append(("(the class)", why))
        outcome.counts["FAILED"] += 1
    return outcome


def line_of(given: Listed, outcome: Outcome, seconds: float) -> str:
    bad = len(outcome.unexpected(given))
    parts = [
        f"{outcome.counts['SUCCESSFUL']} passed",
        f"{bad} failed",
        f"{outcome.counts['ABORTED']} aborted",
    ]
    if expected := outcome.counts["FAILED"] - bad:
        parts.append(f"{expected} failed as expected")
    if given.left_out:
        parts.append(f"{len(given.left_out)} left out")
    return f"{given.mark}{given.name}: {', '.join(parts)} ({seconds:.0f} s)"


def main() -> int:
    parser = argparse.ArgumentParser(description="Run Apache Kafka's own tests against this broker.")
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help="classes with this text in their name, or in +NAME where they are marked",
    )
    parser.add_argument("--timeout", type=float, default=900, metavar="SECONDS", help="for a class (900)")
    parser.add_argument(
        "--method", default="", metavar="REGEX", help="only these methods, also those that are left out"
    )
    parser.add_argument("--keep", action="store_true", help="keep the output of all classes")
    given = parser.parse_args()
    chosen = [one for one in listed(CLASSES.read_text()) if given.only in one.mark + one.name]
    if given.method:
        chosen = [
            Listed(one.name, one.several_brokers, {given.method}, may_fail=one.may_fail) for one in chosen
        ]
    if not chosen:
        parser.error(f"no class in {CLASSES.name} has {given.only!r} in its name")
    try:
        suite = build()
    except Unavailable as reason:
        print(f"Kafka's tests cannot be had here: {reason}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the JVM under way ends with this program
    folder = Path(tempfile.mkdtemp(prefix="kafka-suite-"))
    total, unexpected = collections.Counter[str](), 0
    with contextlib.ExitStack() as running:
        zookeeper = ""
        if any(one.several_brokers for one in chosen):
            zookeeper = running.enter_context(RunningZooKeeper(folder)).address
        for number, one in enumerate(chosen):
            began = time.monotonic()
            address = zookeeper if one.several_brokers else ""
            kept = folder / f"{number}-{one.name}"
            outcome = run_class(suite, one, given.timeout, kept, address)
            total += outcome.counts
            print(line_of(one, outcome, time.monotonic() - began), flush=True)
            for method, why in (bad := outcome.unexpected(one)):
                print(f"    failed: {method}: {why}", flush=True)
            unexpected += len(bad)
            if not bad and not given.keep:
                shutil.rmtree(kept, ignore_errors=True)
    print(
        f"{len(chosen)} classes: {total['SUCCESSFUL']} passed, {unexpected} failed, {total['ABORTED']} "
        "aborted, "
        f"{total['FAILED'] - unexpected} failed as expected"
    )
    if unexpected or given.keep:
        print(f"output is in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return int(unexpected > 0)


if __name__ == "__main__":
    sys.exit(main())
