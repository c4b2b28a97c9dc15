"""A console in a child process, and a browser-like client for it that carries the cookie and the token."""

import re
from collections.abc import Mapping
from typing import Any

import httpx

from tests.support.running import RunningService

TOKEN = re.compile(r'name="csrf" value="([0-9a-f]+)"')


class Client(httpx.Client):
    """Follows redirects, and sends forms with the token of this session."""

    def token(self, page: str = "/") -> str:
        text = self.get(page).text
        found = TOKEN.search(text) or re.search(r'"X-CSRF-Token": "([0-9a-f]+)"', text)
        assert found is not None, text[:500]
        return found[1]

    def form(self, url: str, **fields: object) -> httpx.Response:
        data = {name: str(value) for name, value in fields.items()}
        return self.post(url, data={"csrf": self.token("/login" if url == "/login" else "/"), **data})


class RunningConsole(RunningService):
    command = "console"
    http: Client

    def __init__(
        self, bootstrap: str, settings: Mapping[str, object] | None = None, verify: Any = True
    ) -> None:
        given = {"bootstrap.servers": bootstrap, "sample.interval.ms": 300, **(settings or {})}
        super().__init__(given, verify)

    def client(self) -> Client:
        """A browser of its own."""
        return Client(base_url=self.url, timeout=120, follow_redirects=True, verify=self._verify)
