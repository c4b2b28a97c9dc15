"""`millstream down`: stop what `millstream up` started."""

import os
import signal
import time
from typing import Annotated

import typer

from millstream.cli import shared_options
from millstream.cli.errors import CommandFailed
from millstream.cli.up import DataDir


def command(
    data_dir: DataDir = "",
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait for the end.")] = 45.0,
    version: shared_options.Version = False,
) -> int:
    """Stop what `millstream up` started, in any terminal or in the background. Data stays."""
    if version:
        return shared_options.show_version()
    from millstream.up.data_folders import NotRunning, find

    try:
        home = find(data_dir)
        instance = home.instance()
    except NotRunning as nothing:
        print(str(nothing))
        return 0
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
                f"it and "
                "its services"
            )
        time.sleep(0.05)
    print(f"Stopped {', '.join(one.name for one in instance.services)} ({home.path}).")
    return 0
