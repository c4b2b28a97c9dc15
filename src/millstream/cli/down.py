"""`millstream down`: stop what `millstream up` started."""

import os
import signal
import time
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli import shared_options
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.up import DataDir

if TYPE_CHECKING:
    from millstream.up.data_folders import DataFolder, Instance


def command(
    data_dir: DataDir = "",
    every: Annotated[
        bool, typer.Option("--all", help="Stop all of them, if `up` runs more than once.")
    ] = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait for the end.")] = 45.0,
    version: shared_options.Version = False,
) -> int:
    """Stop what `millstream up` started, in any terminal or in the background. Data stays."""
    if version:
        return shared_options.show_version()
    if every and data_dir:
        raise UsageError("--all stops all of them and --data-dir names one: use one of them")
    from millstream.up.data_folders import NotRunning, SeveralRunning, find, running

    try:
        for home in running() if every else [find(data_dir)]:
            print(stop(home, home.instance(), timeout))
    except NotRunning as nothing:
        print(str(nothing))
    except SeveralRunning as several:
        raise CommandFailed(
            f"`up` runs more than once; name one with --data-dir FOLDER, or stop them with --all:\n{several}"
        ) from None
    return 0


def stop(home: "DataFolder", instance: "Instance", timeout: float) -> str:
    """Ask for the end and wait for it; returns what has stopped."""
    try:
        os.kill(instance.pid, signal.SIGTERM)
    except ProcessLookupError:
        pass
    except PermissionError:
        raise CommandFailed(f"process {instance.pid} belongs to another user") from None
    deadline = time.monotonic() + timeout
    while home.in_use():
        if time.monotonic() > deadline:
            raise CommandFailed(
                f"process {instance.pid} has not ended after {timeout:g} s; `kill -9 {instance.pid}` ends "
                "it and its services"
            )
        time.sleep(0.05)
    return f"Stopped {', '.join(service.name for service in instance.services)} ({home.path})."
