"""Metrics that clients push: by confluent-kafka, by hand, with the tools that subscribe to them."""

from __future__ import annotations

import io
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer

from millstream.__main__ import main
from millstream.testing import Broker
from millstream.wire.compression import GZIP, ZSTD, compress
from millstream.wire.errors import ErrorCode
from tests.broker.conftest import Wire
from tests.support.otlp import gauge, metrics_data
from tests.support.waiting import wait_until

GET, PUSH = 71, 72


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"millstream.metrics.listener": "127.0.0.1:0", "telemetry.max.bytes": "5000"}) as broker:
        yield broker
        assert "Traceback" not in broker.log


def metrics(broker: Broker) -> str:
    line = next(line for line in broker.log.splitlines() if "/metrics" in line)
    with urllib.request.urlopen(line[line.index("http://") :].split()[0]) as page:  # noqa: S310
        return str(page.read(), "utf-8")


def tool(broker: Broker, *arguments: str, code: int = 0) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        assert main([*arguments, "--bootstrap-server", broker.bootstrap_servers]) == code
    return out.getvalue()


def client_metrics(broker: Broker, *arguments: str, code: int = 0) -> str:
    return tool(broker, "client-metrics", *arguments, code=code)


def get(wire: Wire, id: UUID | None = None) -> Any:
    return wire.ask("get_telemetry_subscriptions", client_instance_id=id)


def push(wire: Wire, subscribed: Any, payload: bytes, **changes: Any) -> int:
    fields = {
        "client_instance_id": subscribed.client_instance_id,
        "subscription_id": subscribed.subscription_id,
        "terminating": False,
        "compression_type": 0,
        "metrics": payload,
    }
    return int(wire.ask("push_telemetry", **{**fields, **changes}).error_code)


def served(wire: Wire) -> set[int]:
    answer = wire.ask("api_versions", client_software_name="test", client_software_version="1")
    return {api.api_key for api in answer.api_keys}


def test_clients_are_asked_only_where_there_is_a_page(
    broker: Broker, millstream_broker: Broker, connect: Callable[[Broker], Wire]
) -> None:
    assert {GET, PUSH} <= served(connect(broker))
    assert not {GET, PUSH} & served(connect(millstream_broker))


def test_confluents_client_pushes(broker: Broker) -> None:
    client_metrics(
        broker, "--alter", "--name", "ck", "--metrics", "*", "--interval", "100", "--match", "client_id=ck-.*"
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "ck-1", "log_level": 0})
    others = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "else", "log_level": 0})
    try:
        others.produce("ck-topic", b"v")
        others.flush(60)

        def pushed() -> bool:
            producer.produce("ck-topic", b"v")
            producer.flush(60)
            return 'kafka_client_producer_request_latency_avg{client_id="ck-1"' in metrics(broker)

        wait_until(pushed)
        page = metrics(broker)
        assert 'client_id="else"' not in page
        (info,) = [
            line for line in page.splitlines() if line.startswith('kafka_client_info{client_id="ck-1"')
        ]
        assert 'client_software_name="confluent-kafka-python"' in info
        assert 'principal="User:ANONYMOUS"' in info
    finally:
        client_metrics(broker, "--delete", "--name", "ck")


def test_by_hand(broker: Broker, connect: Callable[[Broker], Wire]) -> None:
    """With every codec, errors, and what a change of the subscription does."""
    wire = connect(broker)
    client_metrics(broker, "--alter", "--name", "h", "--metrics", "a.,b.", "--interval", "100")
    try:
        subscribed = get(wire)
        assert subscribed.error_code == 0
        assert list(subscribed.requested_metrics) == ["a.", "b."]
        assert list(subscribed.accepted_compression_types) == [4, 3, 1, 2]
        assert subscribed.delta_temporality
        assert subscribed.telemetry_max_bytes == 5000
        id = subscribed.client_instance_id

        def due(payload: bytes, **changes: Any) -> ErrorCode:
            """What becomes of it once it does not come too early."""
            codes = [ErrorCode.throttling_quota_exceeded]

            def answered() -> bool:
                codes.append(ErrorCode(push(wire, subscribed, payload, **changes)))
                return codes[-1] is not ErrorCode.throttling_quota_exceeded

            wait_until(answered)
            return codes[-1]

        for codec in range(5):
            payload = compress(codec, metrics_data(gauge("hand.codec", float(codec), codec=codec)))
            assert due(payload, compression_type=codec) is ErrorCode.none
            assert f'kafka_client_hand_codec{{codec="{codec}",client_id="' in metrics(broker)

        assert due(b"\x0a\x05abc") is ErrorCode.invalid_record
        bomb = compress(ZSTD, bytes(20 << 20))
        assert due(bomb, compression_type=ZSTD) is ErrorCode.invalid_record
        assert due(b"no gzip", compression_type=GZIP) is ErrorCode.invalid_record
        assert "millstream_client_metrics_unreadable_pushes_total 3" in metrics(broker)
        assert due(b"", client_instance_id=None) is ErrorCode.invalid_request
        assert due(b"", subscription_id=1) is ErrorCode.unknown_subscription_id
        assert due(b"", compression_type=9) is ErrorCode.unsupported_compression_type
        assert due(bytes(5001)) is ErrorCode.telemetry_too_large
        # A client that asks is told a change at once, one that pushes learns that there was one.
        client_metrics(broker, "--alter", "--name", "h", "--metrics", "c.")
        assert push(wire, subscribed, b"") == ErrorCode.unknown_subscription_id
        again = get(wire, id)
        assert (again.error_code, list(again.requested_metrics)) == (0, ["c."])
        assert push(wire, again, b"", terminating=True) == 0
        assert push(wire, again, b"", terminating=True) == ErrorCode.invalid_request
    finally:
        client_metrics(broker, "--delete", "--name", "h")


def test_the_tools_print_what_kafkas_print(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    """Recorded from Kafka 4.3.1."""
    assert client_metrics(broker, "--list") == "\n"
    assert (
        client_metrics(
            broker, "--alter", "--name", "lag",
            "--metrics", "org.apache.kafka.consumer.,org.apache.kafka.producer.",
            "--interval", "1000", "--match", "client_id=app.*,client_software_name=librdkafka",
        )
        == "Altered client metrics config for lag.\n"
    )  # fmt: skip
    assert client_metrics(broker, "--alter", "--name", "all", "--metrics", "*").startswith("Altered")
    lag = (
        "Client metrics configs for lag are:\n"
        "  interval.ms=1000\n"
        "  match=client_id=app.*,client_software_name=librdkafka\n"
        "  metrics=org.apache.kafka.consumer.,org.apache.kafka.producer.\n"
    )
    all_ = "Client metrics configs for all are:\n  interval.ms=300000\n  match=\n  metrics=*\n"
    assert client_metrics(broker, "--describe") == all_ + lag
    assert client_metrics(broker, "--describe", "--name", "lag") == lag
    assert client_metrics(broker, "--describe", "--name", "none") == (
        "The client metric resource none doesn't exist and doesn't have dynamic config.\n"
    )
    assert client_metrics(broker, "--list") == "all\nlag\n"
    client_metrics(broker, "--alter", "--name", "lag", "--interval", "")
    assert "  interval.ms=300000\n" in client_metrics(broker, "--describe", "--name", "lag")
    for option, value, problem in (
        (
            "--interval",
            "5",
            "Invalid value 5 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        ("--match", "client_idx=app.*", "Illegal client matching pattern: client_idx=app.*"),
        ("--match", "client_id=[", "Illegal client matching pattern: client_id=["),
    ):
        client_metrics(broker, "--alter", "--name", "lag", option, value, code=1)
        assert capsys.readouterr().err == f"Error while executing client metrics command : {problem}\n"
    for name in ("lag", "none", "all"):
        assert client_metrics(broker, "--delete", "--name", name) == (
            f"Deleted client metrics config for {name}.\n"
        )
    assert client_metrics(broker, "--alter", "--generate-name", "--metrics", "x").startswith("Altered")
    (made,) = client_metrics(broker, "--list").split()
    client_metrics(broker, "--delete", "--name", made)

    configs = ("configs", "--entity-type", "client-metrics")
    tool(
        broker, *configs, "--alter", "--entity-name", "cm", "--add-config", "interval.ms=2000,metrics=[a.,b.]"
    )
    shown = (
        "Dynamic configs for client-metric cm are:\n"
        "  interval.ms=2000 sensitive=false synonyms={DYNAMIC_CLIENT_METRICS_CONFIG:interval.ms=2000}\n"
        "  metrics=a.,b. sensitive=false synonyms={DYNAMIC_CLIENT_METRICS_CONFIG:metrics=a.,b.}\n"
    )
    assert tool(broker, *configs, "--describe") == shown
    tool(broker, *configs, "--alter", "--entity-name", "cm", "--delete-config", "metrics,interval.ms")
    assert tool(broker, *configs, "--describe") == ""


def test_subscriptions_outlive_the_broker(connect: Callable[[Broker], Wire]) -> None:
    with Broker({"millstream.metrics.listener": "127.0.0.1:0"}) as broker:
        client_metrics(broker, "--alter", "--name", "kept", "--metrics", "a.", "--interval", "7000")
        broker.restart()
        subscribed = get(connect(broker))
        assert list(subscribed.requested_metrics) == ["a."]
        assert subscribed.push_interval.total_seconds() == 7
