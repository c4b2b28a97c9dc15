"""schemathesis: requests made up for every resource. No answer may be a fault of the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core import NotSet

from millstream.connect.rest import loggers
from millstream.connect.rest.app import router
from tests.connect.conftest import Worker

EXAMPLES = 4
# Any JSON, and more often what looks like settings.
BODY = {
    "anyOf": [
        {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "config": {"type": "object", "additionalProperties": {"type": "string"}},
                "connector.class": {"enum": ["FileStreamSink", "FileStreamSource", "Nobody"]},
                "topics": {"type": "string"},
                "file": {"enum": ["/dev/null"]},
                "offsets": {"type": "array", "items": {"type": "object"}},
                "level": {"enum": ["INFO", "LOUD"]},
            },
        },
        {"type": "array", "items": {"type": "object"}},
        {"type": "string"},
        {"type": "null"},
    ]
}


def described() -> dict[str, Any]:
    """The resources with their parameters; the services read bodies themselves, so any JSON is one."""
    app = FastAPI()
    for one in (router, loggers.router):
        app.include_router(one)
    found = app.openapi()
    for path in found["paths"].values():
        for method, operation in path.items():
            if method in ("post", "put", "patch"):
                operation["requestBody"] = {"content": {"application/json": {"schema": BODY}}}
    return found


def test_no_server_error(make_worker: Callable[..., Worker]) -> None:
    worker = make_worker()
    checked = 0
    for found in schemathesis.openapi.from_dict(described()).get_all_operations():
        check(worker, found.ok())
        checked += 1
    assert checked > 25
    assert worker.http.get("/").status_code == 200


def check(worker: Worker, operation: schemathesis.APIOperation) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
    )
    @given(case=operation.as_strategy())
    def run(case: schemathesis.Case) -> None:
        options: dict[str, Any] = {"params": case.query or None}
        if case.method in ("POST", "PUT", "PATCH"):
            options["json"] = None if isinstance(case.body, NotSet) else case.body
        response = worker.http.request(case.method, case.formatted_path, **options)
        assert response.status_code < 500, f"{case.method} {case.formatted_path}: {response.text}"
        assert "Traceback" not in response.text
        if response.status_code >= 400:
            assert set(response.json()) == {"error_code", "message"}, response.text

    run()
