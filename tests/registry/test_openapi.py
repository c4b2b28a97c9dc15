"""schemathesis: requests made up from the registry's own description. No answer may be a fault of the
server."""

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from millstream.testing import Broker
from tests.support.running import RunningRegistry

EXAMPLES = 3


@pytest.fixture(scope="module")
def registry(broker: Broker) -> Iterator[RunningRegistry]:
    """One of its own: made-up requests change the global config, too."""
    settings = {"kafkastore.topic": "made-up", "schema.registry.group.id": "made-up"}
    with RunningRegistry(broker.bootstrap_servers, settings) as running:
        yield running


def test_no_server_error(registry: RunningRegistry) -> None:
    described = schemathesis.openapi.from_url(f"{registry.url}/openapi.json")
    checked = 0
    for found in described.get_all_operations():
        check(found.ok())
        checked += 1
    assert checked > 30


def check(operation: schemathesis.APIOperation) -> None:
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
        if case.path.startswith("/mode") and case.method == "PUT":
            case.body = {"mode": "READWRITE"}  # in another mode, what follows would all be refused
        response = case.call()
        assert response.status_code < 500, f"{case.method} {case.path}: {response.text}"
        assert "Traceback" not in response.text
        if response.status_code >= 400:
            assert set(response.json()) == {"error_code", "message"}

    run()


@pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
def test_pages(registry: RunningRegistry, path: str) -> None:
    assert registry.http.get(path).status_code == 200
