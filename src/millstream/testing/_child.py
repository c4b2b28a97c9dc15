"""What runs first in the child process: it ties the child's life to its parent's, then becomes the broker.

The parent holds the writing end of our standard input and never writes to it. The kernel closes that end when
the parent ends, also after kill -9, and then the read below returns: the broker has no reason to live any
more. A thread that waits in read() costs nothing, unlike a watching process, and unlike a parent-death signal
it does not depend on which thread of the parent made us. A broker that is paused (SIGSTOP) at that moment is
woken by the kernel first: it has a process group of its own, which is orphaned by the parent's end.
"""

import os
import signal
import sys
import threading

PARENT_GONE = 0  # the descriptor whose end of file means that the parent is gone


def end_with_parent() -> None:
    # Signals are the main thread's: one delivered to the waiting thread would not interrupt what the broker
    # waits in.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    threading.Thread(target=_wait_for_the_end, name="end-with-parent", daemon=True).start()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait_for_the_end() -> None:
    while os.read(PARENT_GONE, 1024):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    end_with_parent()
    from millstream.__main__ import main as millstream

    sys.argv[0] = "millstream"
    sys.exit(millstream())


if __name__ == "__main__":
    main()
