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

    Exit codes: 0 all services are ready, 1 some are not, 3 nothing runs. If `up` runs more than once, all of
    them are shown; as JSON or YAML, in a list.
    """
    if version:
        return shared_options.show_version()
    style = check_style(output)
    from millstream.up.data_folders import NotRunning, SeveralRunning, find

    try:
        homes = [find(data_dir)]
    except SeveralRunning as several:
        homes = several.homes
    instances = []
    reason = ""
    for home in homes:
        try:
            instances.append(home.instance())
        except NotRunning as nothing:
            reason = str(nothing)
    if not instances:
        if style in ("json", "yaml"):
            emit(Report(data={"running": False}), style)
        else:
            print(f"{reason}; `millstream up` starts it")
        return NOT_RUNNING
    if style == "lines":
        style = "table"
    if len(instances) == 1:
        emit(report(instances[0]), style)
    elif style == "table":
        for number, instance in enumerate(instances):
            print(f"{chr(10) if number else ''}{instance.data_dir}, process {instance.pid}:")
            emit(report(instance), style)
    else:
        emit(Report(data=[report(instance).data for instance in instances]), style)
    services = [service for instance in instances for service in instance.services]
    return 0 if all(service.state == "ready" for service in services) else 1


def report(instance: "Instance") -> Report:
    rows: list[list[Any]] = []
    data: list[dict[str, Any]] = []
    for service in instance.services:
        memory = resident(service.pid)
        age = duration(time.time() - service.since)
        rows.append(
            [
                service.name,
                service.state,
                service.address,
                service.pid,
                age,
                service.restarts,
                memory and f"{memory:.0f} MB",
            ]
        )
        data.append({**asdict(service), "memory_mb": memory and round(memory, 1)})
    facts = {**asdict(instance), "running": True, "services": data}
    return Report((), facts, ["Service", "State", "Address", "Process", "For", "Restarts", "Memory"], rows)


def resident(pid: int | None) -> float | None:
    """Megabytes of memory that a process and those it started hold, where /proc says it. ZooKeeper and Spark
    are a small process of ours with a JVM below it."""
    if pid is None:
        return None
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except (OSError, ValueError, IndexError):
        return None
    below = [resident(int(child)) or 0.0 for text in lists for child in text.split()]
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6 + sum(below)


def duration(seconds: float) -> str:
    """3 s, 4 min, 5 h, 6 d."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"
