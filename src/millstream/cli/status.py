"""`millstream status`: what `millstream up` runs."""

import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli import shared_options
from millstream.cli.output import Report, check_style, emit
from millstream.cli.up import DataDir

if TYPE_CHECKING:
    from millstream.up.data_folders import Instance

NOT_RUNNING = 3  # as `systemctl status` says it


def command(
    data_dir: DataDir = "",
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="STYLE", help="table, json or yaml.")
    ] = "table",
    version: shared_options.Version = False,
) -> int:
    """Show what `millstream up` runs: addresses, processes, restarts.

    Exit codes: 0 all services are ready, 1 some are not, 3 nothing runs.
    """
    if version:
        return shared_options.show_version()
    style = check_style(output)
    from millstream.up.data_folders import NotRunning, find

    try:
        instance = find(data_dir).instance()
    except NotRunning as nothing:
        if style in ("json", "yaml"):
            emit(Report(data={"running": False}), style)
        else:
            print(f"{nothing}; `millstream up` starts it")
        return NOT_RUNNING
    emit(report(instance), "table" if style == "lines" else style)
    return 0 if all(one.state == "ready" for one in instance.services) else 1


def report(instance: "Instance") -> Report:
    rows: list[list[Any]] = []
    data: list[dict[str, Any]] = []
    for one in instance.services:
        memory = resident(one.pid)
        age = duration(time.time() - one.since)
        rows.append(
            [one.name, one.state, one.address, one.pid, age, one.restarts, memory and f"{memory:.0f} MB"]
        )
        data.append({**asdict(one), "memory_mb": memory and round(memory, 1)})
    facts = {**asdict(instance), "running": True, "services": data}
    return Report((), facts, ["Service", "State", "Address", "Process", "For", "Restarts", "Memory"], rows)


def resident(pid: int | None) -> float | None:
    """Megabytes of memory that a process holds, where /proc says it."""
    if pid is None:
        return None
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def duration(seconds: float) -> str:
    """3 s, 4 min, 5 h, 6 d."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"
