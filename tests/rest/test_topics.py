"""Topics, partitions, settings, brokers: both versions."""

from collections.abc import Callable

import httpx

from tests.support import secured_services
from tests.support.waiting import wait_until

from .rest_client import RunningRest
from .test_produce import refused


def test_v2(rest: RunningRest, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2, retention_ms="12345")
    http = rest.http
    assert http.get("/").json() == {}
    assert topic in http.get("/topics").json()
    assert "__consumer_offsets" not in http.get("/topics").json()
    body = http.get(f"/topics/{topic}").json()
    assert body["name"] == topic and body["configs"]["retention.ms"] == "12345"
    (broker,) = http.get("/brokers").json()["brokers"]
    partition = {
        "partition": 1,
        "leader": broker,
        "replicas": [{"broker": broker, "leader": True, "in_sync": True}],
    }
    assert body["partitions"][1] == partition
    assert http.get(f"/topics/{topic}/partitions").json()[1] == partition
    assert http.get(f"/topics/{topic}/partitions/1").json() == partition
    rest.produce(topic, "json", [{"value": 1, "partition": 1}])
    offsets = http.get(f"/topics/{topic}/partitions/1/offsets").json()
    assert offsets == {"beginning_offset": 0, "end_offset": 1}
    for path in ("", "/partitions", "/partitions/0", "/partitions/0/offsets"):
        assert refused(http.get(f"/topics/no-such-topic{path}")) == (404, 40401)
    for path in ("", "/offsets"):
        assert refused(http.get(f"/topics/{topic}/partitions/7{path}")) == (404, 40402)
    assert refused(http.get(f"/topics/{topic}/partitions/x")) == (404, 404)


def test_clusters_and_brokers(rest: RunningRest, cluster: str) -> None:
    base = f"{rest.url}{cluster}"
    cluster_id = cluster.rpartition("/")[2]
    listed = rest.http.get("/v3/clusters").json()
    assert listed["kind"] == "KafkaClusterList"
    assert listed["metadata"] == {"self": f"{rest.url}/v3/clusters", "next": None}
    body = rest.http.get(cluster).json()
    assert listed["data"] == [body]
    assert body["kind"] == "KafkaCluster"
    assert body["metadata"] == {"self": base, "resource_name": f"crn:///kafka={cluster_id}"}
    assert body["topics"] == {"related": f"{base}/topics"}
    assert body["partition_reassignments"] == {"related": f"{base}/topics/-/partitions/-/reassignment"}
    brokers = rest.http.get(f"{cluster}/brokers").json()
    assert brokers["kind"] == "KafkaBrokerList"
    (broker,) = brokers["data"]
    number = broker["broker_id"]
    assert broker["metadata"]["resource_name"] == f"crn:///kafka={cluster_id}/broker={number}"
    assert rest.http.get(broker["metadata"]["self"]).json() == broker
    assert rest.http.get(broker["configs"]["related"]).json()["kind"] == "KafkaBrokerConfigList"
    assert rest.http.get(broker["partition_replicas"]["related"]).json()["kind"] == "KafkaReplicaList"
    assert body["controller"]["related"].startswith(f"{base}/brokers/")
    assert refused(rest.http.get("/v3/clusters/other")) == (404, 404)
    assert rest.http.get("/v3/clusters/other/topics").json()["message"] == "Cluster other cannot be found."
    assert refused(rest.http.get(f"{cluster}/brokers/77")) == (404, 404)


def test_topics(rest: RunningRest, cluster: str, topic: str) -> None:
    http, base = rest.http, f"{rest.url}{cluster}/topics/{topic}"
    body = http.get(f"{cluster}/topics/{topic}").json()
    assert body["kind"] == "KafkaTopic" and body["topic_name"] == topic
    assert (body["is_internal"], body["partitions_count"], body["replication_factor"]) == (False, 1, 1)
    assert body["metadata"]["self"] == base
    assert body["partitions"] == {"related": f"{base}/partitions"}
    listed = http.get(f"{cluster}/topics").json()
    assert listed["kind"] == "KafkaTopicList" and body in listed["data"]
    body = http.patch(f"{cluster}/topics/{topic}", json={"partitions_count": 3}).json()
    assert body["partitions_count"] == 3
    assert refused(http.patch(f"{cluster}/topics/{topic}", json={"partitions_count": 2})) == (400, 40002)
    partitions = http.get(body["partitions"]["related"]).json()
    assert partitions["kind"] == "KafkaPartitionList" and len(partitions["data"]) == 3
    one = partitions["data"][2]
    assert one["kind"] == "KafkaPartition" and one["partition_id"] == 2
    assert http.get(one["metadata"]["self"]).json() == one
    replicas = http.get(one["replicas"]["related"]).json()
    assert replicas["kind"] == "KafkaReplicaList"
    replica = http.get(one["leader"]["related"]).json()
    assert replica == replicas["data"][0]
    assert (replica["is_leader"], replica["is_in_sync"]) == (True, True)
    offset = http.get(f"{base}/partitions/0/offset").json()
    assert (offset["kind"], offset["earliest_offset"], offset["latest_offset"]) == (
        "KafkaPartitionWithOffsets",
        0,
        0,
    )
    assert http.get(body["partition_reassignments"]["related"]).json()["data"] == []
    assert http.get(f"{cluster}/topics/-/partitions/-/reassignment").json()["data"] == []
    assert refused(http.get(one["reassignment"]["related"])) == (404, 404)
    assert refused(http.get(f"{base}/partitions/9")) == (404, 404)
    assert refused(http.get(f"{base}/partitions/0/replicas/99")) == (404, 404)
    assert http.delete(base).status_code == 204
    assert refused(http.get(base)) == (404, 40403)
    assert refused(http.delete(base)) == (404, 40403)


def test_creating_topics(rest: RunningRest, cluster: str, topic: str) -> None:
    http = rest.http
    name = f"{topic}-new"
    body = {"topic_name": name, "partitions_count": 2, "validate_only": True}
    assert http.post(f"{cluster}/topics", json=body).status_code == 200
    assert refused(http.get(f"{cluster}/topics/{name}")) == (404, 40403)
    (broker,) = http.get("/brokers").json()["brokers"]
    body = {
        "topic_name": name,
        "replicas_assignments": {"0": [broker], "1": [broker]},
        "configs": [{"name": "cleanup.policy", "value": "compact"}],
    }
    answer = http.post(f"{cluster}/topics", json=body)
    assert answer.status_code == 201 and answer.json()["partitions_count"] == 2, answer.text
    assert answer.headers["location"] == f"{rest.url}{cluster}/topics/{name}"
    assert http.get(f"{cluster}/topics/{name}/configs/cleanup.policy").json()["value"] == "compact"
    for given, expected in (
        ({"topic_name": name}, (400, 40002)),
        ({"topic_name": "not a topic!"}, (422, 42206)),
        ({"topic_name": f"{name}2", "partitions_count": 0}, (400, 40002)),
        ({"topic_name": f"{name}2", "replication_factor": 9}, (400, 40002)),
        ({"topic_name": f"{name}2", "configs": [{"name": "no.such", "value": "1"}]}, (400, 40002)),
        ({"topic_name": f"{name}2", "configs": [1]}, (400, 400)),
        ({"topic_name": f"{name}2", "more": 1}, (422, 422)),
        ({"partitions_count": 1}, (422, 422)),
    ):
        assert refused(http.post(f"{cluster}/topics", json=given)) == expected, given
    assert refused(http.post(f"{cluster}/topics")) == (422, 42206)


def test_settings_of_several_topics(rest: RunningRest, cluster: str, topic: str) -> None:
    http, path = rest.http, f"{cluster}/topics/-/configs:alter"
    other = f"{topic}-other"
    http.post(f"{cluster}/topics", json={"topic_name": other})

    def values(name: str) -> list[str]:
        topics = (topic, other)
        return [http.get(f"{cluster}/topics/{one}/configs/{name}").json()["value"] for one in topics]

    def alter(one: list[dict[str, str]], two: list[dict[str, str]], **more: bool) -> httpx.Response:
        data = [{"topic_name": topic, "configs": one}, {"topic_name": other, "configs": two}]
        return http.post(path, json={"data": data, **more})

    compact, many = {"name": "cleanup.policy", "value": "compact"}, {"name": "retention.ms", "value": "77"}
    assert alter([compact, many], [compact], validate_only=True).status_code == 204
    assert values("cleanup.policy") == ["delete", "delete"]
    assert alter([compact, many], [compact]).status_code == 204
    assert (values("cleanup.policy"), values("retention.ms")[0]) == (["compact", "compact"], "77")

    # What the cluster refuses is said topic by topic, and stops no other.
    partly = alter([{"name": "cleanup.policy", "operation": "DELETE"}], [{**compact, "value": "shrink"}])
    assert partly.status_code == 207
    (failure,) = partly.json()["failures"]
    assert (failure["topic_name"], failure["error_code"]) == (other, 40002) and failure["message"]
    assert values("cleanup.policy") == ["delete", "compact"]

    # What cannot be meant changes nothing.
    assert refused(alter([compact], [{"name": "no.such", "value": "1"}])) == (404, 404)
    assert values("cleanup.policy") == ["delete", "compact"]
    missing = {"data": [{"topic_name": "no-such-topic", "configs": [compact]}]}
    assert refused(http.post(path, json=missing)) == (404, 40403)
    assert refused(http.post(path, json={"data": [{"topic_name": topic, "configs": []}]})) == (422, 422)
    assert refused(http.post(path, json={"data": [{"configs": [compact]}]}))[0] in (400, 422)


def test_topic_settings(rest: RunningRest, cluster: str, topic: str) -> None:
    http, base = rest.http, f"{cluster}/topics/{topic}/configs"
    body = http.get(f"{base}/retention.ms").json()
    assert body["kind"] == "KafkaTopicConfig" and body["topic_name"] == topic
    assert (body["is_default"], body["source"]) == (True, "DEFAULT_CONFIG")
    default = body["value"]
    assert http.put(f"{base}/retention.ms", json={"value": "1000"}).status_code == 204
    body = http.get(f"{base}/retention.ms").json()
    assert (body["value"], body["is_default"], body["source"]) == ("1000", False, "DYNAMIC_TOPIC_CONFIG")
    own = {"name": "retention.ms", "value": "1000", "source": "DYNAMIC_TOPIC_CONFIG"}
    assert body["synonyms"][0] == own
    assert body in http.get(base).json()["data"]
    assert body in http.get(f"{cluster}/topics/-/configs").json()["data"]
    defaults = http.get(f"{cluster}/topics/{topic}/default-configs").json()["data"]
    assert next(one for one in defaults if one["name"] == "retention.ms")["value"] == default
    assert http.delete(f"{base}/retention.ms").status_code == 204
    assert http.get(f"{base}/retention.ms").json()["value"] == default
    changes = [
        {"name": "retention.ms", "value": "77"},
        {"name": "cleanup.policy", "operation": "SET", "value": "compact"},
    ]
    only = {"data": changes, "validate_only": True}
    assert http.post(f"{base}:alter", json=only).status_code == 204
    assert http.get(f"{base}/retention.ms").json()["value"] == default
    assert http.post(f"{base}:alter", json={"data": changes}).status_code == 204
    assert http.get(f"{base}/cleanup.policy").json()["value"] == "compact"
    delete = {"data": [{"name": "cleanup.policy", "operation": "DELETE"}]}
    assert http.post(f"{base}:alter", json=delete).status_code == 204
    assert http.get(f"{base}/cleanup.policy").json()["value"] == "delete"
    assert refused(http.put(f"{base}/retention.ms", json={"value": "soon"})) == (400, 40002)
    assert refused(http.put(f"{base}/no.such", json={"value": "1"})) == (404, 404)
    assert refused(http.get(f"{base}/no.such")) == (404, 404)
    assert refused(http.post(f"{base}:alter", json={"data": [{"name": "x", "operation": "ADD"}]})) == (
        422,
        422,
    )
    assert refused(http.get(f"{cluster}/topics/no-such-topic/configs")) == (404, 40403)


def test_broker_and_cluster_settings(rest: RunningRest, cluster: str) -> None:
    http = rest.http
    (broker,) = http.get("/brokers").json()["brokers"]
    base = f"{cluster}/brokers/{broker}/configs"
    body = http.get(f"{base}/log.cleaner.threads").json()
    assert body["kind"] == "KafkaBrokerConfig" and body["broker_id"] == broker
    assert body in http.get(base).json()["data"]
    assert body in http.get(f"{cluster}/brokers/-/configs").json()["data"]
    wide = f"{cluster}/broker-configs"
    assert http.put(f"{wide}/log.retention.ms", json={"value": "600000"}).status_code == 204
    # Kafka's brokers learn it a moment later.
    wait_until(lambda: http.get(f"{wide}/log.retention.ms").status_code == 200)
    body = http.get(f"{wide}/log.retention.ms").json()
    assert (body["kind"], body["config_type"], body["value"]) == ("KafkaClusterConfig", "BROKER", "600000")
    assert body["source"] == "DYNAMIC_DEFAULT_BROKER_CONFIG"
    assert body in http.get(wide).json()["data"]
    assert http.delete(f"{wide}/log.retention.ms").status_code == 204
    wait_until(lambda: http.get(f"{wide}/log.retention.ms").status_code != 200)
    assert refused(http.get(f"{wide}/log.retention.ms")) == (404, 404)
    change = {"data": [{"name": "log.retention.ms", "value": "700000"}]}
    assert http.post(f"{wide}:alter", json=change).status_code == 204
    back = {"data": [{"name": "log.retention.ms", "operation": "DELETE"}]}
    assert http.post(f"{wide}:alter", json=back).status_code == 204
    assert refused(http.get(f"{cluster}/brokers/77/configs")) == (404, 404)


def test_acls(rest: RunningRest, cluster: str) -> None:
    """The brokers under test have no authorizer, and say so in Kafka's words; or they are secured ones."""
    http = rest.http
    acl = {
        "resource_type": "TOPIC",
        "resource_name": "t",
        "pattern_type": "LITERAL",
        "principal": "User:a",
        "host": "*",
        "operation": "READ",
        "permission": "ALLOW",
    }
    wanted = {"resource_type": "TOPIC", "pattern_type": "LITERAL", "operation": "READ", "permission": "ALLOW"}
    for answer, status in (
        (http.post(f"{cluster}/acls", json=acl), 201),
        (http.post(f"{cluster}/acls:batch", json={"data": [acl]}), 201),
        (http.get(f"{cluster}/acls"), 200),
        (http.delete(f"{cluster}/acls", params=wanted), 200),
    ):
        if secured_services.wanted():
            assert answer.status_code == status, answer.text
            continue
        assert refused(answer) == (400, 40002)
        assert "No Authorizer is configured" in answer.json()["message"]
    assert refused(http.delete(f"{cluster}/acls")) == (400, 400)
    assert refused(http.post(f"{cluster}/acls", json={**acl, "operation": "ANY"})) == (400, 400)
    assert refused(http.post(f"{cluster}/acls", json={})) == (422, 422)
    assert refused(http.get(f"{cluster}/acls", params={"operation": "SING"})) == (404, 404)
