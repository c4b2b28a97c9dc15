"""`/metrics` of the proxy."""

from tests.http import metrics_page

from .rest_client import RunningRest


def samples(rest: RunningRest) -> dict[str, float]:
    return metrics_page.samples(rest.http.get("/metrics").text)


def test_records_and_instances(rest: RunningRest, topic: str, group: str) -> None:
    before = samples(rest)
    assert rest.produce(topic, "json", [{"value": n} for n in range(5)]).status_code == 200
    assert rest.produce(topic, "json", [{"value": 1, "partition": 99}]).status_code in (200, 404, 422)
    consumer = rest.consumer(group)
    consumer.subscribe(topic)
    consumer.read(5)
    after = samples(rest)

    def more(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert more("millstream_rest_records_produced_total") == 5
    assert more("millstream_rest_records_consumed_total") == 5
    assert more("millstream_rest_consumer_instances") == 1
    route = 'method="POST",route="/topics/{topic}",service="rest",status="200"'
    assert more(f"millstream_http_requests_total{{{route}}}") >= 1
    assert not any(topic in name or group in name for name in after)
    consumer.delete()
    assert samples(rest)["millstream_rest_consumer_instances"] == before["millstream_rest_consumer_instances"]
    assert "/metrics" not in rest.http.get("/openapi.json").json()["paths"]
