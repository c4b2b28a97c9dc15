"""For all tests: `--against` says which broker those talk to that can talk to any; `slow` ones run only when `-m` is given;
the last line counts what was skipped and why; in CI nothing may be skipped."""

from __future__ import annotations

import os
from collections import Counter

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--against",
        default=os.environ.get("MILLSTREAM_AGAINST", "millstream"),
        metavar="millstream|kafka|HOST:PORT",
        help="the broker that tests of clients talk to",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: runs of minutes: `make faults` and `make examples` run them")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("-m"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


@pytest.fixture(scope="session")
def against(pytestconfig: pytest.Config) -> str:
    """ "millstream", "kafka", or an address."""
    return str(pytestconfig.getoption("--against"))


def _reasons(terminal: pytest.TerminalReporter) -> Counter[str]:
    reasons: Counter[str] = Counter()
    for report in terminal.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason.removeprefix("Skipped: ")] += 1
    return reasons


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and exitstatus == 0 and terminal is not None and _reasons(terminal):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None:
        return
    reasons = _reasons(terminal)
    listed = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common())
    print(f"skipped: {sum(reasons.values())}{' (' + listed + ')' if listed else ''}")
