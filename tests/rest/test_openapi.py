"""schemathesis: requests made up from the proxy's own description. No answer may be a fault of the server."""

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from millstream.testing import Broker

from .rest_client import RunningRest

EXAMPLES = 3


@pytest.fixture(scope="module")
def own_rest() -> Iterator[RunningRest]:
    """With a broker of its own: made-up requests change its settings, too."""
    limits = {"consumer.request.timeout.ms": 50, "client.default.api.timeout.ms": 5000}
    with Broker() as broker, RunningRest(broker.bootstrap_servers, settings=limits) as running:
        yield running


def test_no_server_error(own_rest: RunningRest) -> None:
    cluster_id = own_rest.http.get("/v3/clusters").json()["data"][0]["cluster_id"]
    own_rest.http.post(f"/v3/clusters/{cluster_id}/topics", json={"topic_name": "t"})
    body = {"name": "i", "format": "json"}
    own_rest.http.post("/consumers/g", json=body, headers={"Content-Type": "application/vnd.kafka.v2+json"})
    described = schemathesis.openapi.from_url(f"{own_rest.url}/openapi.json")
    checked = 0
    for found in described.get_all_operations():
        check(found.ok(), cluster_id)
        checked += 1
    assert checked > 60


def check(operation: schemathesis.APIOperation, cluster_id: str) -> None:
    known = {
        "cluster_id": cluster_id,
        "topic_name": "t",
        "topic": "t",
        "partition": "0",
        "partition_id": "0",
        "broker_id": "1",
        "group": "g",
        "instance": "i",
    }

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
        given_path = dict(case.path_parameters or {})
        existing = {name: known.get(name, made_up) for name, made_up in given_path.items()}
        for parameters in (given_path, existing):
            if case.method == "DELETE" and parameters != given_path:
                continue
            if "name" in parameters and case.method in ("PUT", "DELETE"):
                parameters = {**parameters, "name": "no.such.setting"}
            case.path_parameters = parameters
            response = case.call()
            assert response.status_code < 500, f"{case.method} {case.path} {parameters}: {response.text}"
            assert "Traceback" not in response.text
            if response.status_code >= 400:
                assert set(response.json()) == {"error_code", "message"}

    run()


@pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
def test_pages(own_rest: RunningRest, path: str) -> None:
    assert own_rest.http.get(path).status_code == 200
