"""What becomes of an operation that fails, by `errors.*` (KIP-298).

A RetriableError is tried again for `errors.retry.timeout`. What fails for good is left out where
`errors.tolerance` is `all`: in transforms and converters any error, elsewhere only retriable ones. Otherwise
it fails the task.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from millstream.connect.errors import ConnectError, RetriableError

log = logging.getLogger("millstream.connect")
Result = TypeVar("Result")

FIRST_DELAY_MS = 300


class Stage(Enum):
    TASK_POLL = "TASK_POLL"
    TRANSFORMATION = "TRANSFORMATION"
    KEY_CONVERTER = "KEY_CONVERTER"
    VALUE_CONVERTER = "VALUE_CONVERTER"
    HEADER_CONVERTER = "HEADER_CONVERTER"
    KAFKA_PRODUCE = "KAFKA_PRODUCE"
    KAFKA_CONSUME = "KAFKA_CONSUME"
    TASK_PUT = "TASK_PUT"


_ANY_ERROR = frozenset(
    {Stage.TRANSFORMATION, Stage.KEY_CONVERTER, Stage.VALUE_CONVERTER, Stage.HEADER_CONVERTER}
)


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong with a record, where, in whose code."""

    stage: Stage
    class_name: str
    error: Exception


class RecordFailed(Exception):
    """The record is to be left out."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure.error))
        self.failure = failure


class Tolerance:
    def __init__(self, settings: Mapping[str, Any], task_name: str) -> None:
        """`settings` are parsed ones."""
        self._all = settings["errors.tolerance"] == "all"
        self._timeout_ms = settings["errors.retry.timeout"]
        self._max_delay_ms = settings["errors.retry.delay.max.ms"]
        self._log = settings["errors.log.enable"]
        self._log_messages = settings["errors.log.include.messages"]
        self._task_name = task_name

    def execute(self, stage: Stage, class_name: str, operation: Callable[[], Result]) -> Result:
        """RecordFailed where the record is to be left out, ConnectError where the task fails."""
        try:
            return self._with_retries(operation)
        except Exception as error:
            failure = Failure(stage, class_name, error)
            if stage not in _ANY_ERROR and not isinstance(error, RetriableError):
                raise ConnectError("Unhandled exception in error handler") from error
            self.fail(failure)
            raise RecordFailed(failure) from error

    def fail(self, failure: Failure) -> None:
        """Returns where this is tolerated."""
        if not self._all:
            raise ConnectError("Tolerance exceeded in error handler") from failure.error

    def log_failure(self, failure: Failure, record: object) -> None:
        if self._log:
            what = f" {record}" if self._log_messages else ""
            log.error(
                "Error encountered in task %s. Executing stage '%s' with class '%s'.%s",
                self._task_name,
                failure.stage.value,
                failure.class_name,
                what,
                exc_info=failure.error,
            )

    def _with_retries(self, operation: Callable[[], Result]) -> Result:
        deadline = None if self._timeout_ms < 0 else time.monotonic() + self._timeout_ms / 1000
        tries = 0
        while True:
            try:
                return operation()
            except RetriableError:
                now = time.monotonic()
                if deadline is not None and now >= deadline:
                    raise
                pause = self._delay(tries)
                tries += 1
                time.sleep(pause if deadline is None else min(pause, deadline - now))

    def _delay(self, tries: int) -> float:
        """Doubling; above the longest pause, a random one below it."""
        delay = FIRST_DELAY_MS << min(tries, 32)
        if delay > self._max_delay_ms:
            delay = random.randrange(max(1, self._max_delay_ms))
        return delay / 1000
