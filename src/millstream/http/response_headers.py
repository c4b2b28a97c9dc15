"""`response.http.headers.config`: headers that an operator adds to every response, as Jetty's HeaderFilter
does for Confluent's services.

A list of `action name: value`, separated by commas; an entry with commas of its own is in double quotes. The
actions are set, add, setDate and addDate, the last two with milliseconds from now for a value. What the
service itself says about a response (its Content-Type, for example) is not replaced.
"""

import csv
import re
import time
from collections.abc import Callable
from email.utils import formatdate

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millstream.settings.values import InvalidSetting

SETTING = "response.http.headers.config"
_ENTRY = re.compile(
    r"(set|add|setdate|adddate)\s+([!#$%&'*+.^_`|~0-9a-z-]+)\s*:\s*([\t\x20-\x7e]*)", re.IGNORECASE
)

Header = tuple[bytes, bytes]


class ResponseHeaders:
    """Around a whole application."""

    def __init__(self, app: ASGIApp, text: str) -> None:
        self._app = app
        self._entries = parse_entries(text)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = list(message["headers"])
                message = {**message, "headers": [*own, *self._additional({name.lower() for name, _ in own})]}
            await send(message)

        await self._app(scope, receive, with_headers)

    def _additional(self, present: set[bytes]) -> list[Header]:
        made: list[Header] = []
        for replaces, name, value in self._entries:
            if replaces:
                if name in present:
                    continue
                made = [header for header in made if header[0] != name]
            made.append((name, value()))
        return made


def with_response_headers(app: ASGIApp, text: str) -> ASGIApp:
    return ResponseHeaders(app, text) if text.strip() else app


def parse_entries(text: str) -> list[tuple[bool, bytes, Callable[[], bytes]]]:
    """Whether an entry replaces others of its name, the name, and what makes the value."""
    entries: list[tuple[bool, bytes, Callable[[], bytes]]] = []
    try:
        listed = next(csv.reader([text], skipinitialspace=True))
    except csv.Error as error:
        raise InvalidSetting(SETTING, text, str(error)) from None
    for entry in listed:
        found = _ENTRY.fullmatch(entry.strip())
        if found is None:
            raise InvalidSetting(
                SETTING, entry, "expected `set`, `add`, `setDate` or `addDate`, then `name: value`"
            )
        action, name, value = found[1].lower(), found[2].lower().encode(), found[3].strip()
        entries.append((action.startswith("set"), name, _value(entry, action, value)))
    return entries


def _value(entry: str, action: str, text: str) -> Callable[[], bytes]:
    if not action.endswith("date"):
        fixed = text.encode()
        return lambda: fixed
    try:
        seconds = int(text) / 1000
    except ValueError:
        raise InvalidSetting(SETTING, entry, "a date is a number of milliseconds from now") from None
    return lambda: formatdate(time.time() + seconds, usegmt=True).encode()
