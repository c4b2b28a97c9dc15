"""For all tests: `--against` says which broker those talk to that can talk to any; markers for what needs
Spark, Java or a browser are set here; the last line of a run says what was skipped and what to install; in CI
nothing may be skipped."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support import effort, needs
from tests.support.zookeeper import RunningZooKeeper, temporary_folder

# Spark's drivers live for seconds here: their second compiler would take more time than its code saves.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

# How long one example takes says something about the machine, not about the code.
# In CI the same examples at every run: what a change did not do must not stop it. Everywhere else new ones.
hypothesis.settings.register_profile(
    "ours", deadline=None, max_examples=effort.examples(100), derandomize=bool(os.environ.get("CI"))
)
hypothesis.settings.load_profile("ours")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--against",
        default=os.environ.get("MILLSTREAM_AGAINST", "millstream"),
        metavar="millstream|kafka|HOST:PORT",
        help="the broker that tests of clients talk to",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What `-m` leaves out by its file is not even imported."""
    leaves_out_long = "not long" in str(config.getoption("-m"))
    return True if leaves_out_long and needs.is_long(collection_path) else None


@pytest.hookimpl(tryfirst=True)  # -m looks at the markers afterwards
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needs.mark(items)


@pytest.fixture(scope="session")
def against(pytestconfig: pytest.Config) -> str:
    """ "millstream", "kafka", or an address."""
    return str(pytestconfig.getoption("--against"))


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[RunningZooKeeper]:
    """A ZooKeeper for the whole run; a test takes a `chroot()` of it."""
    with temporary_folder() as folder, RunningZooKeeper(Path(folder)) as running:
        yield running


def _skip_reasons(terminal: pytest.TerminalReporter) -> Counter[str]:
    reasons: Counter[str] = Counter()
    for report in terminal.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason.removeprefix("Skipped: ")] += 1
    return reasons


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and exitstatus == 0 and terminal is not None and _skip_reasons(terminal):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    """The last line: how many tests were skipped, why, and the command that brings what they need."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None:
        return
    reasons = _skip_reasons(terminal)
    line = f"skipped: {reasons.total()}"
    if reasons:
        line += f" ({'; '.join(f'{count} x {reason}' for reason, count in reasons.most_common())})"
    if commands := needs.installs(reasons):
        line += f". To run them: {commands}"
    print(line)
