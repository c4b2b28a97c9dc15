"""What runs first in the child: it ties the broker to the process of the tests, then becomes the broker.

A broker without its tests has no reason to live, so it gets SIGKILL at once. One that is paused (SIGSTOP) at
that moment is woken by the kernel first: it has a process group of its own, which is orphaned by the parent's
end.
"""

import sys

from millstream.up.parent_process import end_with_parent


def main() -> None:
    end_with_parent(grace=0)
    from millstream.__main__ import main as millstream

    sys.argv[0] = "millstream"
    sys.exit(millstream())


if __name__ == "__main__":
    main()
