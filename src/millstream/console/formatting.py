"""Numbers, sizes and moments as the pages show them, and addresses of things within the site."""

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

UNITS = ("B", "KB", "MB", "GB", "TB", "PB")
PAGE_SIZE = 50


def number(value: float | int | None) -> str:
    """With thin gaps between thousands; - for what is not known."""
    if value is None:
        return "\u2013"
    if isinstance(value, float) and value < 100 and value != int(value):
        return f"{value:.1f}"
    return f"{round(value):,}".replace(",", "\u202f")


def counted(value: int, noun: str) -> str:
    """1 message, 2 messages."""
    return f"{number(value)} {noun}{'' if value == 1 else 's'}"


def size(value: float | int | None) -> str:
    if value is None or value < 0:
        return "\u2013"
    amount = float(value)
    for unit in UNITS:
        if amount < 1000 or unit == UNITS[-1]:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1000
    return ""


def ago(moment: float) -> str:
    seconds = max(0, time.time() - moment)
    if seconds < 90:
        return f"{seconds:.0f} s ago"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min ago"
    if seconds < 129_600:
        return f"{seconds / 3600:.0f} h ago"
    return f"{seconds / 86_400:.0f} days ago"


def clock(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(moment)) + " UTC"


def path_segment(text: Any) -> str:
    """Any text as one step of a path."""
    return quote(str(text), safe="")


def query(**values: Any) -> str:
    """A query without what is empty."""
    return urlencode({name: value for name, value in values.items() if value not in (None, "", False)})


def asset_url(folder: Path) -> Callable[[str], str]:
    """The address of a file with a mark of its content, so that browsers may keep it until it changes."""
    digests: dict[str, str] = {}

    def address(name: str) -> str:
        if name not in digests:
            digests[name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()[:10]
        return f"/static/{name}?{digests[name]}"

    return address


FILTERS: dict[str, Callable[..., Any]] = {
    "number": number,
    "counted": counted,
    "size": size,
    "ago": ago,
    "clock": clock,
    "path_segment": path_segment,
}


class Paging:
    """Which rows of a long list are on this page."""

    def __init__(self, total: int, page: str | None, per_page: int = PAGE_SIZE) -> None:
        self.total = total
        self.pages = max(1, -(-total // per_page))
        wanted = int(page) if page and page.isdecimal() and len(page) < 9 else 1
        self.page = min(max(1, wanted), self.pages)
        self.first = (self.page - 1) * per_page
        self.last = min(total, self.first + per_page)
