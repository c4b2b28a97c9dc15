"""kio, imported without its strategies for hypothesis.

Where hypothesis is installed (any test environment), kio registers a strategy per type while it is imported:
two seconds that no broker needs. So hypothesis is hidden from it for the length of the import, unless it is
loaded already.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_hypothesis() -> Iterator[None]:
    hidden = "hypothesis" not in sys.modules
    if hidden:
        sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if hidden:
            del sys.modules["hypothesis"]
