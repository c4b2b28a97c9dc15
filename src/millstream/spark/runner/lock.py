"""One process per checkpoint folder: two would undo each other's work."""

import fcntl
import os
from pathlib import Path
from typing import IO

from millstream.spark.errors import PipelineError


def lock_folder(folder: Path, pipeline: str) -> IO[str]:
    """Locked as long as the returned file is open."""
    folder.mkdir(parents=True, exist_ok=True)
    file = open(folder / "run.lock", "a+", encoding="utf-8")  # noqa: SIM115 - open as long as the pipeline runs
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        who = file.read().strip()
        file.close()
        raise PipelineError(
            f"pipeline {pipeline} runs already{f' (pid {who})' if who else ''}: its folder {folder} is locked"
        ) from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file
