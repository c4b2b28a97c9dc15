"""The coordinator around the rules: its topic, expiry, producer ids, feature levels, metrics."""

import asyncio
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.broker.apis.api_versions import SUPPORTED_FEATURES
from millstream.broker.coordinators.runtime import CoordinatorRuntime
from millstream.broker.coordinators.transactions.coordinator import TransactionCoordinator
from millstream.broker.coordinators.transactions.transaction_records import State, Transaction
from millstream.broker.coordinators.transactions.transaction_state import TransactionStateMachine
from millstream.client import ClientConfig, Cluster
from millstream.client.messages import API_KEYS
from millstream.cluster.commands import FeatureUpdate, UpdateFeatures, UpgradeType
from millstream.cluster.context import Context
from millstream.cluster.driver import Controller
from millstream.cluster.local_store import LocalStore
from millstream.cluster.registration import Registration
from millstream.testing import Broker
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import iter_records
from tests.support.waiting import wait_until

from .log_files import batches, log_file, log_partition
from .raw_transactions import Client, batch, name

FEATURE = "transaction.version"


def finalized(client: Client) -> dict[str, int]:
    answer = client.ask("api_versions", 4, client_software_name="t", client_software_version="1")
    return {feature.name: feature.max_version_level for feature in answer.finalized_features}


def set_level(folder: Path, level: int) -> None:
    """Change the feature's level in the metadata of a broker that does not run."""

    async def change() -> None:
        store = await LocalStore.open(folder / "millstream-metadata")
        controller = Controller(store, 1, Context(supported_features=SUPPORTED_FEATURES))
        await controller.start(Registration("test", (), features=dict(SUPPORTED_FEATURES)))
        update = FeatureUpdate(FEATURE, level, UpgradeType.SAFE_DOWNGRADE)
        await controller.submit(UpdateFeatures([update]))
        await controller.close()

    asyncio.run(change())


def versions_of_records(broker: Broker, txn: str) -> list[int]:
    path = log_file(broker, "__transaction_state", log_partition(txn))
    records = [record for _, _, data in batches(path) for record in iter_records(data)]
    return [int.from_bytes((record.value or b"")[:2], "big") for record in records]


def test_the_topic_is_created_when_somebody_first_asks_for_it() -> None:
    with Broker() as broker, Client(broker.bootstrap_servers) as client:
        assert client.try_init("early").error is ErrorCode.not_coordinator
        client.coordinator("early")
        answer = client.ask(
            "metadata", 5, topics=[{"name": "__transaction_state"}], allow_auto_topic_creation=False
        )
        (topic,) = answer.topics
        assert topic.is_internal
        assert len(topic.partitions) == 50
        assert {len(partition.replica_nodes) for partition in topic.partitions} == {1}
        described = client.ask(
            "describe_configs",
            4,
            resources=[
                {
                    "resource_type": 2,
                    "resource_name": "__transaction_state",
                    "configuration_keys": ["cleanup.policy", "compression.type", "segment.bytes"],
                }
            ],
            include_synonyms=False,
            include_documentation=False,
        )
        configs = {config.name: config.value for config in described.results[0].configs}
        assert configs == {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "segment.bytes": "104857600",
        }


def test_idle_ids_are_forgotten(tmp_path: Path) -> None:
    settings = {
        "transactional.id.expiration.ms": 1500,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 100,
    }
    with Broker(settings, data_dir=tmp_path) as broker:
        with Client(broker.bootstrap_servers) as client:
            topic, idle, busy = client.topic(), name("idle"), name("busy")
            first = client.init(idle)
            open_one = client.init(busy)
            client.produce(busy, topic, batch(open_one), 12)
            wait_until(lambda: client.describe(idle)[0].error_code is not ErrorCode.none, "it is kept")
            assert client.describe(idle)[0].error_code is ErrorCode.transactional_id_not_found
            answer = client.try_add(idle, first, (topic, 0))
            assert answer == {(topic, 0): ErrorCode.invalid_producer_id_mapping}
            assert client.state(busy) == "Ongoing", "an open transaction is never forgotten"
        broker.restart()
        with Client(broker.bootstrap_servers) as client:
            client.coordinator(idle)
            assert client.describe(idle)[0].error_code is ErrorCode.transactional_id_not_found
            again = client.init(idle, known=first[1:])
            assert again.epoch == 0
            assert again.id != first.id


def test_producer_ids_last_longer_than_a_block() -> None:
    with Broker() as broker, Client(broker.bootstrap_servers) as client:
        given = [client.try_init(None).id for _ in range(2500)]
        assert len(set(given)) == 2500
        assert given == sorted(given)


def test_a_folder_from_before_the_feature_is_raised(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        with Client(broker.bootstrap_servers) as client:
            assert finalized(client)[FEATURE] == 2
        broker.stop()
        set_level(tmp_path, 0)
        broker.start()
        assert "transaction.version=2" in broker.log
        with Client(broker.bootstrap_servers) as client:
            assert finalized(client)[FEATURE] == 2


@pytest.mark.parametrize("version", [1, 2])
def test_a_lower_level_that_somebody_chose_stays(tmp_path: Path, version: int) -> None:
    """At level 1 the broker takes transactions away in the old manner; clients of both versions work all the
    same."""
    with Broker(data_dir=tmp_path) as broker:
        broker.stop()
        set_level(tmp_path, 1)
        broker.start()
        with Client(broker.bootstrap_servers) as client:
            assert finalized(client)[FEATURE] == 1
            topic, txn = client.topic(), name("txn")
            identity = client.init(txn)
            if version == 1:
                client.add(txn, identity, (topic, 0))
            client.produce(txn, topic, batch(identity), 11 if version == 1 else 12)
            client.end(txn, identity, True, 4 if version == 1 else 5)
            client.wait_for_state(txn, "CompleteCommit")
            assert client.committed_values(topic) == [b"v"]
            zombie = client.init(txn)
            client.add(txn, zombie, (topic, 0))
            assert client.try_init(txn, known=zombie[1:]).error is ErrorCode.concurrent_transactions
            error = client.patiently(lambda: client.try_init(txn, known=zombie[1:])).error
            assert error is ErrorCode.producer_fenced
            assert set(versions_of_records(broker, txn)) == {1}


def test_metrics() -> None:
    settings = {"millstream.metrics.listener": "127.0.0.1:0"}
    with Broker(settings) as broker, Client(broker.bootstrap_servers) as client:
        topic, txn = client.topic(), name("txn")
        identity = client.init(txn)
        client.produce(txn, topic, batch(identity), 12)
        assert 'millstream_transactional_ids{state="Ongoing"} 1' in metrics(broker)
        client.end(txn, identity, False, 5)
        page = metrics(broker)
        assert 'millstream_transactions_ended_total{result="abort"} 1' in page
        assert "millstream_transactions_completing 0" in page


def metrics(broker: Broker) -> str:
    line = next(line for line in broker.log.splitlines() if "/metrics" in line)
    url = line[line.index("http://") :].split()[0]
    with urllib.request.urlopen(url) as page:  # noqa: S310
        return str(page.read(), "utf-8")


def test_a_two_phase_commit_must_be_allowed() -> None:
    """Version 6 of InitProducerId is unstable in Kafka, which lists 5 unless told otherwise."""

    def newest(broker: Broker) -> int:
        with Cluster(ClientConfig.of(broker.bootstrap_servers)) as cluster:
            return cluster.any().versions[API_KEYS["init_producer_id"]][1]

    with Broker() as broker:
        assert newest(broker) == 5
    settings = {"unstable.api.versions.enable": True}
    with Broker(settings) as broker, Client(broker.bootstrap_servers) as client:
        assert newest(broker) == 6
        client.coordinator("a")
        refused = client.try_init("a", version=6, enable2_pc=True)
        assert refused.error is ErrorCode.transactional_id_authorization_failed
        assert client.try_init("a", version=6).error is ErrorCode.none
    settings = {"transaction.two.phase.commit.enable": True}
    with Broker(settings) as broker, Client(broker.bootstrap_servers) as client:
        assert newest(broker) == 6
        client.coordinator("a")
        refused = client.try_init("a", version=6, keep_prepared_txn=True)
        assert refused.error is ErrorCode.unsupported_version
        refused = client.try_init("", version=6, enable2_pc=True)
        assert refused.error is ErrorCode.invalid_request
        assert client.try_init("a", version=6, enable2_pc=True).error is ErrorCode.none
        assert client.describe("a")[0].timeout_ms == 2**31 - 1


def test_a_decided_transaction_shows_where_its_markers_are_missing() -> None:
    partitions = frozenset({("a", 0), ("b", 1)})
    machine = TransactionStateMachine(Transaction("id", 5, 3, 1000, State.PREPARE_COMMIT, partitions, 0))
    shard = SimpleNamespace(find=lambda transactional_id: machine)
    here: Any = SimpleNamespace(runtime=SimpleNamespace(shard=lambda transactional_id: shard))
    assert TransactionCoordinator.describe(here, "id").partitions == partitions
    machine.marked(("a", 0))
    assert TransactionCoordinator.describe(here, "id").partitions == {("b", 1)}


def test_ids_are_listed_when_all_logs_are_read_or_cannot_be() -> None:
    def shard(ready: bool, loading: bool) -> Any:
        return SimpleNamespace(ready=ready, loading=loading)

    def listed(*shards: Any) -> list[str]:
        nothing: Any = None
        runtime = CoordinatorRuntime[Any](nothing, "__transaction_state", nothing, "", "", {})
        for at, each in enumerate(shards):
            each.all = lambda at=at: [f"id {at}"]
            runtime.shards[at] = each
        here: Any = SimpleNamespace(runtime=runtime)
        return list(TransactionCoordinator.all(here))

    assert listed(shard(True, False), shard(True, False)) == ["id 0", "id 1"]
    assert listed(shard(True, False), shard(False, False)) == ["id 0"]
    with pytest.raises(KafkaError) as raised:
        listed(shard(True, False), shard(False, True))
    assert raised.value.code is ErrorCode.coordinator_load_in_progress
