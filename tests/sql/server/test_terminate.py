"""POST /ksql/terminate: what is wrong with it is said before anything is stopped."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import Request

from millstream.sql.server.routes.requests import ApiError
from millstream.sql.server.routes.statements import MAX_EXPRESSIONS, terminate
from millstream.sql.server.service import SqlService


class Untouched:
    """A service of which nothing may be stopped."""

    def terminate_cluster(self, topics: list[str]) -> None:
        SqlService.terminate_cluster(self, topics)  # type: ignore[arg-type]

    def __setattr__(self, name: str, value: Any) -> None:
        raise AssertionError(f"{name} was changed")


@pytest.mark.parametrize(
    "topics", [5, "t", [5], ["("], ["(?=a)"], ["a" * 5000], ["a"] * (MAX_EXPRESSIONS + 1)]
)
async def test_expressions_that_are_none_are_refused(topics: Any) -> None:
    async def receive() -> dict[str, object]:
        body = json.dumps({"deleteTopicList": topics}).encode()
        return {"type": "http.request", "body": body, "more_body": False}

    app = SimpleNamespace(state=SimpleNamespace(service=Untouched()))
    request = Request({"type": "http", "headers": [], "app": app}, receive)
    with pytest.raises(ApiError) as refused:
        await terminate(request)
    assert refused.value.status == 400
