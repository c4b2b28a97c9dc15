"""Which consumer is slow, and why, from the metrics that consumers push to the brokers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from confluent_kafka import Consumer

from millstream.cli.client_metrics import CLIENT_METRICS
from millstream.client import Admin, ClientConfig, Cluster, NewTopic
from millstream.client.admin import SET
from millstream.client.producer import Producer
from millstream.console.client_telemetry import consumers
from millstream.testing import Broker
from millstream.wire.records import Record
from tests.support.waiting import wait_until

from .console_client import RunningConsole

_numbers = count()
LABELS = 'client_id="{0}",client_instance_id="{1}",group_id="g"'


def page(client_id: str = "c", **figures: float) -> str:
    labels = LABELS.format(client_id, f"id-{next(_numbers)}")
    lines = [f'kafka_client_info{{client_software_name="java",principal="User:ann",{labels}}} 1']
    lines += [f"kafka_client_consumer_{name}{{{labels}}} {value}" for name, value in figures.items()]
    return "\n".join(lines) + "\n"


IDLE, LAG = "poll_idle_ratio_avg", "fetch_manager_records_lag_max"
FETCH, THROTTLE = "fetch_manager_fetch_latency_avg", "fetch_manager_fetch_throttle_time_avg"


@pytest.mark.parametrize(
    ("figures", "tone", "reason"),
    [
        ({IDLE: 0.1, LAG: 0}, "good", "keeps up"),
        ({IDLE: 0.1, LAG: 500}, "bad", "its application is busy 90%"),
        ({IDLE: 0.9, LAG: 500, FETCH: 2500}, "bad", "a fetch takes 2500 ms"),
        ({IDLE: 0.9, LAG: 500, FETCH: 300, THROTTLE: 80}, "bad", "a quota holds each fetch back for 80 ms"),
        ({IDLE: 0.9, LAG: 500, FETCH: 300}, "warn", "idle 90% of the time"),
        ({LAG: 500}, "warn", "does not say how long"),
        ({LAG: 500, IDLE: 0.1, "coordinator_assigned_partitions": 0}, "", "has no partitions"),
        ({IDLE: 0.9}, "", "not known"),
    ],
)
def test_why_a_consumer_is_slow(figures: dict[str, float], tone: str, reason: str) -> None:
    (found,) = consumers([page(**figures)], {})
    assert found.verdict[0] == tone and reason in found.verdict[1]


def test_the_lag_is_the_groups_where_the_client_says_none() -> None:
    (found,) = consumers([page(**{IDLE: 0.1})], {"g": 70, "other": 1})
    assert found.lag == 70 and found.verdict[0] == "bad"
    assert (found.group, found.software, found.principal) == ("g", "java", "User:ann")


def test_the_slowest_comes_first_and_what_is_no_figure_is_left_out() -> None:
    pages = [
        page("fine", **{LAG: 0}),
        page("busy", **{LAG: 5, IDLE: 0.2}),
        page("busier", **{LAG: 9, IDLE: 0.2}) + "kafka_client_consumer_x{} what\nkafka_client_consumer_y 1\n",
        page('quo"te\\'.replace("\\", "\\\\").replace('"', '\\"'), **{LAG: float("nan")}),
        "kafka_client_producer_x{} 1\nnothing\n",
    ]
    found = consumers(pages, {})
    assert [one.client_id for one in found] == ["busier", "busy", 'quo"te\\', "fine"]


def test_a_consumer_of_librdkafka_on_the_page() -> None:
    with (
        Broker({"millstream.metrics.listener": "127.0.0.1:0"}) as broker,
        Cluster(ClientConfig.of(broker.bootstrap_servers)) as cluster,
    ):
        line = next(line for line in broker.log.splitlines() if "/metrics" in line)
        url = line[line.index("http://") :].split()[0]
        with RunningConsole(broker.bootstrap_servers, {"metrics.urls": f"broker={url}"}) as console:
            empty = console.http.get("/clients").text
            assert "No consumer has pushed anything" in empty and "client-metrics --alter" in empty
            admin = Admin(cluster)
            admin.create_topics([NewTopic("orders", 1, 1)])
            settings = {"metrics": "org.apache.kafka.consumer.", "interval.ms": "100"}
            changes = [(name, SET, text) for name, text in settings.items()]
            assert admin.alter_configs({(CLIENT_METRICS, "all"): changes})[CLIENT_METRICS, "all"] is None
            Producer(cluster).send("orders", 0, [Record(0, 0, None, b"x") for _ in range(50)])
            consumer = Consumer(
                {
                    "bootstrap.servers": broker.bootstrap_servers,
                    "group.id": "billing",
                    "client.id": "slow-<reader>",
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                }
            )
            consumer.subscribe(["orders"])
            try:
                record = wait_until(lambda: consumer.poll(0.5))
                assert record.error() is None
                consumer.commit(record)

                def shown() -> str:
                    consumer.poll(0)
                    text = console.http.get("/clients", headers={"hx-target": "consumers"}).text
                    return text if "slow-&lt;reader&gt;" in text and '<td class="n">49</td>' in text else ""

                text = wait_until(shown)
                assert 'href="/groups/view?name=billing"' in text and "<html" not in text
                assert "keeps up" not in text
                search: Callable[[str], str] = lambda q: console.http.get("/clients", params={"q": q}).text  # noqa: E731
                assert "slow-&lt;reader&gt;" in search("billing")
                assert "No consumer fits the search." in search("nobody")
            finally:
                consumer.close()
