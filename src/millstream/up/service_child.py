"""What runs first in a service's process: it ties the process to its supervisor, then becomes the service.

    python -m millstream.up.service_child MODULE,MODULE,... COMMAND...     (or the same after a fork)

The supervisor holds the other end of our standard input. It writes one line when the service may begin: until
then the modules it will need are loaded, so that services that wait for the broker are not slower for it.
Then it writes nothing more. The kernel closes its end when the supervisor ends, also after kill -9; then the
service gets SIGTERM, to stop as it would have been stopped, and SIGKILL if it has not come to its end some
time later.
"""

import contextlib
import importlib
import os
import sys

from millstream.up.parent_process import end_with_parent

KILL_AFTER = 15.0  # seconds from SIGTERM to SIGKILL when the supervisor is gone


def wait_for_start() -> bool:
    """Wait for the supervisor's line; False when it went away instead."""
    while byte := os.read(0, 1):
        if byte == b"\n":
            return True
    return False


def main(arguments: list[str]) -> int:
    modules, command = arguments[0], arguments[1:]
    for module in filter(None, modules.split(",")):
        with contextlib.suppress(ImportError):  # the service itself will say what is missing
            importlib.import_module(module)
    if not wait_for_start():
        return 0
    end_with_parent(KILL_AFTER)
    from millstream.__main__ import main as millstream

    sys.argv = ["millstream", *command]
    return millstream()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
