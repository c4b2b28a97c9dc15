"""schemathesis: requests made up from the worker's own description. No answer is a fault of the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.connect.conftest import Worker

EXAMPLES = 4
BODIES = st.sampled_from(
    [
        {},
        [],
        "x",
        None,
        {"name": "x", "config": {"connector.class": "FileStreamSource"}},
        {"config": {"a": {"b": 1}}},
        {"name": 5, "config": "x"},
        {"offsets": [{"partition": 1}]},
        {"offsets": {}},
        {"level": 7},
    ]
)


def test_no_server_error(make_worker: Callable[..., Worker]) -> None:
    worker = make_worker()
    described = schemathesis.openapi.from_dict(worker.http.get("/openapi.json").json())
    checked = 0
    for found in described.get_all_operations():
        check(worker, found.ok())
        checked += 1
    assert checked > 30


def check(worker: Worker, operation: Any) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
    )
    @given(case=operation.as_strategy(), body=BODIES)
    def run(case: Any, body: Any) -> None:
        if case.path.endswith("/metrics") and "{" not in case.path:
            return
        path = case.formatted_path
        more = {} if case.method.upper() in ("GET", "DELETE") else {"json": body}
        response = worker.http.request(case.method, path, params=case.query or None, **more)
        assert response.status_code < 500, f"{case.method} {path} {body}: {response.text}"
        assert "Traceback" not in response.text
        if response.status_code >= 400:
            assert set(response.json()) == {"error_code", "message"}

    run()
