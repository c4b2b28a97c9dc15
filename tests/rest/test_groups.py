"""Version 3: consumer groups and their lags."""

from collections.abc import Callable

from .rest_client import RunningRest
from .test_consumers import fill
from .test_produce import refused


def test_groups(rest: RunningRest, cluster: str, group: str, new_topic: Callable[..., str]) -> None:
    http, topic = rest.http, new_topic(2)
    base = f"{cluster}/consumer-groups/{group}"
    assert refused(http.get(base)) == (404, 404)
    rest.produce(topic, "json", [{"value": n, "partition": n % 2} for n in range(10)])
    consumer = rest.consumer(group, **{"auto.commit.enable": "false"})
    consumer.subscribe(topic)
    consumer.read(10)
    offsets = [{"topic": topic, "partition": 0, "offset": 0}, {"topic": topic, "partition": 1, "offset": 3}]
    assert consumer.post("/offsets", {"offsets": offsets}).status_code == 200

    body = http.get(base).json()
    assert body["kind"] == "KafkaConsumerGroup" and body["consumer_group_id"] == group
    assert (body["state"], body["is_simple"], body["partition_assignor"]) == ("STABLE", False, "range")
    assert body["coordinator"]["related"].startswith(f"{rest.url}{cluster}/brokers/")
    listed = http.get(f"{cluster}/consumer-groups").json()
    assert listed["kind"] == "KafkaConsumerGroupList" and body in listed["data"]

    consumers = http.get(body["consumers"]["related"]).json()
    assert consumers["kind"] == "KafkaConsumerList"
    (member,) = consumers["data"]
    assert http.get(member["metadata"]["self"]).json() == member
    assignments = http.get(member["assignments"]["related"]).json()
    assert assignments["kind"] == "KafkaConsumerAssignmentList"
    assert [one["partition_id"] for one in assignments["data"]] == [0, 1]
    one = assignments["data"][0]
    assert http.get(one["metadata"]["self"]).json() == one

    lags = http.get(f"{base}/lags").json()
    assert lags["kind"] == "KafkaConsumerLagList"
    assert [(lag["partition_id"], lag["lag"]) for lag in lags["data"]] == [(0, 4), (1, 1)]
    worst = lags["data"][0]
    assert (worst["current_offset"], worst["log_end_offset"]) == (1, 5)
    assert worst["consumer_id"] == member["consumer_id"]
    assert http.get(one["lag"]["related"]).json() == worst
    summary = http.get(body["lag_summary"]["related"]).json()
    assert summary["kind"] == "KafkaConsumerGroupLagSummary"
    assert (summary["max_lag"], summary["total_lag"], summary["max_lag_partition_id"]) == (4, 5, 0)
    assert http.get(summary["max_lag_partition"]["related"]).json()["partition_id"] == 0
    assert http.get(summary["max_lag_consumer"]["related"]).json() == member

    assert refused(http.get(f"{base}/consumers/nobody")) == (404, 404)
    assert refused(http.get(f"{base}/lags/{topic}/partitions/7")) == (404, 404)
    consumer.delete()
    assert http.get(base).json()["state"] == "EMPTY"
    # Offsets outlive their topic; the lags do not.
    http.delete(f"{cluster}/topics/{topic}")
    assert refused(http.get(f"{base}/lag-summary")) == (404, 404)


def test_a_group_without_offsets(rest: RunningRest, cluster: str, group: str, topic: str) -> None:
    fill(rest, topic, 1)
    consumer = rest.consumer(group, **{"auto.commit.enable": "false"})
    consumer.subscribe(topic)
    consumer.read(1)
    base = f"{cluster}/consumer-groups/{group}"
    assert refused(rest.http.get(f"{base}/lags")) == (404, 404)
    assert refused(rest.http.get(f"{cluster}/consumer-groups/none-{group}/lags")) == (404, 404)
    consumer.delete()
