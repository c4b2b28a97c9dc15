"""Makes those moments long in which something is half done, so that kills hit them: between what a task sends
and the end of its transaction, and between that and the commit of its store."""

import random
import time
from typing import Any

from millstream.client.transactional import TransactionalProducer

RECORD = 0.0004  # seconds for each record
STEP = 0.15  # most seconds before and after the transaction's end


_commit = TransactionalProducer.commit


def key_of(key: bytes, _value: bytes) -> bytes:
    """The application's function: it runs in workers only, so that they are slow and nobody else."""
    TransactionalProducer.commit = _slow_commit  # type: ignore[method-assign]
    time.sleep(RECORD)
    return key


def _slow_commit(self: Any) -> None:
    time.sleep(random.uniform(0, STEP))
    _commit(self)
    time.sleep(random.uniform(0, STEP))
