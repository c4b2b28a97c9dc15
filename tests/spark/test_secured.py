"""A pipeline on a secured cluster: over SASL_SSL, as a user with the least rights that it can do with."""

from collections.abc import Iterator

import pytest

from millstream.client import Admin, ClientConfig, Cluster, NewTopic, Producer
from millstream.client.groups import Committed, Groups
from millstream.client.security_admin import SecurityAdmin
from millstream.spark.errors import explain
from millstream.wire.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from millstream.wire.records import Record
from tests.spark.conftest import SETTINGS
from tests.spark.sink.reading import values_of
from tests.support.secured import Secured

USER, PASSWORD = "pipeline", "pipeline-secret-77c2"
# As docs/security.md has them.
RIGHTS = (
    (ResourceType.TOPIC, "orders", PatternType.LITERAL, (Operation.READ,)),
    (ResourceType.TOPIC, "bills", PatternType.LITERAL, (Operation.WRITE,)),
    (
        ResourceType.TOPIC,
        "__millstream_sink",
        PatternType.LITERAL,
        (Operation.CREATE, Operation.READ, Operation.WRITE),
    ),
    (ResourceType.TRANSACTIONAL_ID, "millstream-", PatternType.PREFIXED, (Operation.WRITE,)),
    (ResourceType.GROUP, "billing", PatternType.LITERAL, (Operation.READ,)),
)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    more: dict[str, object] = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with Secured(tmp_path_factory.mktemp("secured"), **more, **SETTINGS) as running:
        running.add_user(USER, PASSWORD)
        yield running


def test_a_pipeline_with_the_least_rights(spark, secured, tmp_path):
    login = secured.properties("SASL_SSL", "SCRAM-SHA-512", PASSWORD, USER)
    kafka = {f"kafka.{name}": value for name, value in login.items()}
    kafka["kafka.bootstrap.servers"] = secured.servers["SASL_SSL"]

    def run() -> None:
        rows = spark.readStream.format("millstream").options(**kafka).option("subscribe", "orders")
        rows = rows.option("startingOffsets", "earliest").option("kafka.group.id", "billing").load()
        writer = rows.select("key", "value").writeStream.format("millstream").options(**kafka)
        writer = writer.option("topic", "bills").option("delivery", "exactly_once")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()

    with Cluster(ClientConfig.of(secured.servers["PLAINTEXT"])) as cluster:
        Admin(cluster).create_topics([NewTopic("orders", 2, 1), NewTopic("bills", 2, 1)])
        producer = Producer(cluster)
        for partition in (0, 1):
            values = (b"%d" % (2 * number + partition) for number in range(50))
            producer.send(
                "orders", partition, [Record(0, 1_700_000_000_000, b"k", one, []) for one in values]
            )
        with pytest.raises(Exception) as refused:
            run()
        assert "orders" in explain(refused.value)
        SecurityAdmin(cluster).create_acls(
            AclBinding(kind, name, pattern, f"User:{USER}", "*", operation, Permission.ALLOW)
            for kind, name, pattern, operations in RIGHTS
            for operation in operations
        )
        run()
        assert sorted(map(int, values_of(cluster, "bills"))) == list(range(100))
        offsets = Groups(cluster).committed("billing").values()
        assert [one.offset for one in offsets if isinstance(one, Committed)] == [50, 50]
