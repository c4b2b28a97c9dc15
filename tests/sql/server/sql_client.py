"""A SQL server as a child process, with its tasks as threads, and the requests that the tests make."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import httpx

from tests.support.running import RunningService
from tests.support.waiting import wait_until


class RunningSql(RunningService):
    command: ClassVar[str] = "sql-server"

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        settings: Mapping[str, object] | None = None,
        verify: Any = True,
    ) -> None:
        self.service_id = f"s{uuid.uuid4().hex[:8]}_"
        super().__init__(
            {
                "bootstrap.servers": bootstrap,
                "ksql.service.id": self.service_id,
                "ksql.streams.state.dir": folder,
                "ksql.streams.auto.offset.reset": "earliest",
                "ksql.host.local": "true",
                **(settings or {}),
            },
            verify,
        )

    def post(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        return self.http.post(path, json=dict(body))

    def ksql(self, text: str, **properties: Any) -> list[dict[str, Any]]:
        """The entities of statements that have to be accepted."""
        answer = self.post("/ksql", {"ksql": text, "streamsProperties": properties})
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()
        return found

    def refused(self, text: str, path: str = "/ksql") -> dict[str, Any]:
        answer = self.post(path, {"ksql": text} if path == "/ksql" else {"sql": text})
        assert answer.status_code == 400, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def rows(self, sql: str, **properties: Any) -> list[Any]:
        """What /query-stream sends: rows of a query that ends by itself."""
        answer = self.post("/query-stream", {"sql": sql, "properties": properties})
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()[1:]]

    def wait_for_rows(self, sql: str, expected: list[Any]) -> None:
        wait_until(
            lambda: sorted(self.rows(sql)) == sorted(expected), lambda: f"{self.rows(sql)}\n{self.log()}"
        )
