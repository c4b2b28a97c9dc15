"""Regular expressions from outside: RE2, with bounds on what one of them may cost.

RE2 matches in linear time, whatever the expression says, but three things remain. Captures cost memory by
the square of their number (28 KB of brackets take 6 GB), so nothing is captured but what has a name, which
RE2 captures in any case, and names are few. Compiling holds the interpreter's lock, and takes time by the
expression's length, so that is limited; a Unicode class costs as much as some fifty characters, so those are
counted. With these limits, and a megabyte for the compiled expression, compiling takes less than 20 ms.
Matching releases the lock, so that a helper thread can do it.

The library is loaded when the first expression comes: most brokers never see one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

MAX_LENGTH = 4096
MAX_UNICODE_CLASSES = 64
MAX_NAMED_GROUPS = 16
MAX_GROUPS = 100  # where they are captured
DEFAULT_MEMORY = 8 << 20  # of one expression, RE2's own default


class InvalidPattern(ValueError):
    """The expression cannot be used; the message is RE2's."""


def compile_pattern(pattern: str, max_memory: int = DEFAULT_MEMORY) -> Any:
    """An RE2 object that captures named groups only. InvalidPattern if the expression is not one, or costs
    too much."""
    if len(pattern) > MAX_LENGTH:
        raise InvalidPattern(f"longer than {MAX_LENGTH} characters")
    return _found(_compiled(pattern, max_memory))


def compile_with_groups(pattern: str) -> Any:
    """As `compile_pattern`, but it captures its groups, which may be some."""
    if len(pattern) > MAX_LENGTH or pattern.count("(") > MAX_GROUPS:
        raise InvalidPattern(f"longer than {MAX_LENGTH} characters, or more than {MAX_GROUPS} groups")
    return _found(_compiled(pattern, DEFAULT_MEMORY, captures=True))


def _found(compiled: Any) -> Any:
    if isinstance(compiled, str):
        raise InvalidPattern(compiled)
    return compiled


@lru_cache(maxsize=64)
def _compiled(pattern: str, max_memory: int, captures: bool = False) -> Any:
    """The compiled expression, or what is wrong with it: that, too, is worth keeping."""
    import re2

    if pattern.count("\\p") + pattern.count("\\P") > MAX_UNICODE_CLASSES:
        return f"more than {MAX_UNICODE_CLASSES} Unicode classes"
    options = re2.Options()
    options.log_errors = False
    options.max_mem = max_memory
    options.never_capture = not captures
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    except UnicodeEncodeError:
        return "half a character"
    most = MAX_GROUPS if captures else MAX_NAMED_GROUPS
    return f"more than {most} named groups" if compiled.groups > most else compiled
