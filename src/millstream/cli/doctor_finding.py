"""One line of `millstream doctor`."""

from typing import NamedTuple

GOOD, WARNING, PROBLEM = "ok", "warning", "problem"


class Finding(NamedTuple):
    what: str
    state: str
    found: str
    cure: str = ""
