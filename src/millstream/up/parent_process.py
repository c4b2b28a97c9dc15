"""A child process that ends with its parent, however the parent ends.

The parent holds the writing end of our standard input. The kernel closes that end when the parent ends, also
after kill -9, and then the read below returns. A thread that waits in read() costs nothing, unlike a watching
process, and unlike a parent-death signal it does not depend on which thread of the parent made us.
"""

import os
import signal
import threading
import time

STDIN = 0


def end_with_parent(grace: float) -> None:
    """When the parent is gone: SIGTERM, and SIGKILL `grace` seconds later; without grace, SIGKILL at once."""
    # Signals are the main thread's: one delivered to the waiting thread would not interrupt what the main
    # thread waits in.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    threading.Thread(target=_wait_for_end, args=(grace,), name="end-with-parent", daemon=True).start()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait_for_end(grace: float) -> None:
    while os.read(STDIN, 1024):
        pass
    if grace:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace)
    os.kill(os.getpid(), signal.SIGKILL)
