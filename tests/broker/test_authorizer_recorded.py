"""Every API under every right, compared with what Apache Kafka 4.3 answered (see authorizer_scenario.py)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.authorizer import NEEDS
from millstream.testing import Broker
from tests.broker.authorizer_scenario import REQUESTS, SETTINGS, tell

RECORDED = json.loads(Path(__file__).with_name("recorded_authorizer.json").read_text())

# (request, part of Kafka's answer): where this broker answers otherwise, and why.
DIFFERENT = {
    # A topic that Metadata creates is in the same response here; Kafka's has it from the next one on.
    "metadata that creates": {3: 0},
    # From a broker that is no replica: it is told that the images differ.
    "fetch by a follower": {6: 75},
}


@pytest.fixture(scope="module")
def story() -> Iterator[dict[str, dict[str, Any]]]:
    found: dict[str, dict[str, Any]] = {}
    with Broker({**SETTINGS, "node.id": "1"}) as broker:
        for request, grant, answer in tell(broker.bootstrap_servers):
            found.setdefault(request, {})[grant] = answer
    yield found


@pytest.mark.parametrize("request_name", list(REQUESTS))
def test_each_right_gets_kafkas_answer(story: dict[str, dict[str, Any]], request_name: str) -> None:
    recorded = RECORDED[request_name]
    wrong = {}
    for grant, number in recorded["by grant"].items():
        expected, found = recorded["answers"][number], story[request_name][grant]
        if request_name in DIFFERENT:
            expected = allow_difference(expected, DIFFERENT[request_name])
            found = allow_difference(found, DIFFERENT[request_name])
        if expected != found:
            wrong[grant] = (expected, found)
    assert not wrong, f"{len(wrong)} grants; first: {next(iter(wrong.items()))}"


def allow_difference(answer: Any, codes: dict[int, int]) -> Any:
    text = json.dumps(answer)
    for kafka, ours in codes.items():
        text = text.replace(f'"error_code": {kafka},', f'"error_code": {ours},')
    return without(json.loads(text), "partitions", "topic_id")


def without(answer: Any, *names: str) -> Any:
    if isinstance(answer, list):
        return [without(part, *names) for part in answer]
    if isinstance(answer, dict):
        return {name: without(part, *names) for name, part in answer.items() if name not in names}
    return answer


def test_every_api_that_is_served_has_a_row_of_what_it_needs(millstream_broker: Broker) -> None:
    from millstream.client.config import ClientConfig
    from millstream.client.connection import Connection

    host, port = millstream_broker.bootstrap_servers.split(":")
    connection = Connection(ClientConfig.of(f"{host}:{port}"), host, int(port))
    try:
        assert set(connection.versions) <= set(NEEDS)
    finally:
        connection.close()
