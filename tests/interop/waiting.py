"""Kafka answers an admin request when the controller has it; the broker may show it a moment later."""

import time
from collections.abc import Callable

from .clients import Refused

PATIENCE = 10.0


def soon(condition: Callable[[], bool]) -> None:
    """Passes as soon as the condition is true; what the broker refuses meanwhile counts as not yet."""
    deadline = time.monotonic() + PATIENCE
    while True:
        late = time.monotonic() > deadline
        try:
            if condition():
                return
        except Refused:
            if late:
                raise
        assert not late, "it never became true"
        time.sleep(0.02)
