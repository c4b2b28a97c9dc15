"""Makes fsync fail with EIO for the files below the folder that a file names. Python imports this at its
start, where it is on the path; the named file may appear and go while the process runs."""

import errno
import os
from collections.abc import Callable

TARGET = os.environ["MILLSTREAM_FAILING_SYNC"]


def _failing(real: Callable[[int], None]) -> Callable[[int], None]:
    def sync(descriptor: int) -> None:
        try:
            with open(TARGET) as file:
                below = file.read()
        except FileNotFoundError:
            below = ""
        if below and os.readlink(f"/proc/self/fd/{descriptor}").startswith(below):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    return sync


os.fsync = _failing(os.fsync)
os.fdatasync = _failing(os.fdatasync)
