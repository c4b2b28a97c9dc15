"""A user's mistake is one line, wherever in Spark's many processes it is noticed.

Spark carries an exception of a Python process to the driver as text with a traceback, and wraps it in Java's.
For a mistake (a wrong option, a topic that is not there, a broker that does not answer) the traceback is
noise. PySpark leaves it out when SPARK_HIDE_TRACEBACK is in the environment of the process that failed, and
that process ends anyway.
"""

import functools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from millstream.client.errors import Unreachable
from millstream.wire.errors import KafkaError

Given = ParamSpec("Given")
Made = TypeVar("Made")

MARK = "millstream: "
# One of these is in the environment of every Python process that Spark starts.
_OF_SPARK = frozenset(
    {"PYTHON_WORKER_FACTORY_SECRET", "PYTHON_WORKER_FACTORY_PORT", "PYTHON_UNIX_DOMAIN_ENABLED"}
)
_SAID = re.compile(r"millstream: ([^\n]+)")


class PipelineError(Exception):
    """Something that the user can put right. Its text is one line that names the option, topic or address."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return f"{MARK}{self.message}"


class OptionError(PipelineError):
    """A wrong, missing or contradictory option."""


@contextmanager
def plainly() -> Iterator[None]:
    """What the user can put right leaves this block as a PipelineError without a traceback. For code that
    runs in Spark's Python processes (not in the driver's)."""
    try:
        yield
    except PipelineError:
        _without_traceback()
        raise
    except KafkaError as error:
        _without_traceback()
        where = " (option 'kafka.bootstrap.servers')" if isinstance(error, Unreachable) else ""
        raise PipelineError(f"{error.message}{where}") from None


def _without_traceback() -> None:
    if _OF_SPARK & os.environ.keys():
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"


def said_plainly(act: Callable[Given, Made]) -> Callable[Given, Made]:
    """`plainly` around a whole function."""

    @functools.wraps(act)
    def wrapped(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        with plainly():
            return act(*args, **kwargs)

    return wrapped


def explain(error: BaseException) -> str | None:
    """The one line for a user inside an exception that Spark raised in the driver, or None if it is not about
    a mistake."""
    if isinstance(error, PipelineError):
        return error.message
    found = _SAID.search(str(error))
    return found.group(1).strip() if found else None
