"""Why a request is not done."""

from __future__ import annotations

from millstream.connect.errors import ConnectError


class NotFound(ConnectError):
    """There is no such connector, or no such task."""


class Conflict(ConnectError):
    """There is one already, or the worker does not know enough yet."""


class BadRequest(ConnectError):
    """The request makes no sense, or not now."""


class Forbidden(ConnectError):
    """The worker is not set up for that."""


class Elsewhere(ConnectError):
    """Another worker has to do it, at `url`."""

    def __init__(self, url: str) -> None:
        super().__init__(f"this is for the worker at {url}")
        self.url = url
