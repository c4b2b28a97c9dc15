"""Every API asked under many sets of rights: what a client may do with one right, with all but one, and with
none.

The same story is told to Apache Kafka (`record_authorizer.py`) and to this broker
(`test_authorizer_recorded.py`). It needs no login: everybody on a plain listener is `User:ANONYMOUS`, so the
client under test and the administrator differ by their address. Both brokers start with
`allow.everyone.if.no.acl.found`, under which the first ACLs can be made; these name every resource of every
type, so that from then on it allows nothing.

Of each response the errors are compared, the operations that are authorized, and what is named at all.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import time
import uuid
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, NamedTuple
from unittest import mock

from millstream.client.config import ClientConfig
from millstream.client.connection import Connection
from millstream.wire.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from millstream.wire.errors import KafkaError
from millstream.wire.records import Record, encode_batch

# Kafka itself asks its controller from 127.0.0.1, and must be allowed to.
ADMIN, CLIENT = "127.0.0.1", "127.0.0.2"
ANONYMOUS = "User:ANONYMOUS"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTINGS = {
    "authorizer.class.name": AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "true",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "delegation.token.secret.key": "secret",
}
T, G, C, X = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
TYPES = tuple(OPERATIONS)


class Request(NamedTuple):
    api: str
    fields: Callable[[World], dict[str, Any]]
    up_to: int | None = None


class World(NamedTuple):
    """Ids of topics: one that is there, one that is deleted and made again, one of which there is none."""

    alpha: uuid.UUID
    doomed: uuid.UUID
    unknown: uuid.UUID


def source(address: str) -> Any:
    """Connections made meanwhile come from this address."""
    import socket

    return mock.patch(
        "millstream.client.transport.socket.create_connection",
        functools.partial(socket.create_connection, source_address=(address, 0)),
    )


class Asker:
    """A connection from one address, opened again where the broker has closed it."""

    def __init__(self, servers: str, address: str) -> None:
        self.host, port = servers.split(":")
        self.port = int(port)
        self.servers, self.address = servers, address
        self.connection: Connection | None = None

    def ask(self, api: str, up_to: int | None = None, **fields: Any) -> Any:
        if self.connection is None or self.connection.closed:
            with source(self.address):
                self.connection = Connection(ClientConfig.of(self.servers), self.host, self.port)
        return self.connection.request(api, up_to=up_to, **fields)

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()


def acl(
    resource_type: int,
    operation: int,
    permission: int = Permission.ALLOW,
    name: str = "*",
    host: str = CLIENT,
) -> AclBinding:
    name = CLUSTER_NAME if resource_type == C else name
    return AclBinding(resource_type, name, PatternType.LITERAL, ANONYMOUS, host, operation, permission)


def create(asker: Asker, acls: list[AclBinding]) -> None:
    answer = asker.ask(
        "create_acls",
        creations=[
            {
                "resource_type": each.resource_type,
                "resource_name": each.name,
                "resource_pattern_type": each.pattern_type,
                "principal": each.principal,
                "host": each.host,
                "operation": each.operation,
                "permission_type": each.permission,
            }
            for each in acls
        ],
    )
    assert all(result.error_code == 0 for result in answer.results), answer


def filter_fields(host: str | None) -> dict[str, Any]:
    return {
        "resource_type_filter": ResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": host,
        "operation": Operation.ANY,
        "permission_type": Permission.ANY,
    }


def set_rights(admin: Asker, acls: list[AclBinding]) -> None:
    """The rights of the client from now on; returns when the broker knows them."""
    admin.ask("delete_acls", filters=[filter_fields(CLIENT)])
    if acls:
        create(admin, acls)
    for _ in range(600):
        answer = admin.ask("describe_acls", **filter_fields(CLIENT))
        if sum(len(resource.acls) for resource in answer.resources) == len(acls):
            return
        time.sleep(0.02)
    raise AssertionError("the ACLs were not applied")


def grants() -> Iterator[tuple[str, list[AclBinding]]]:
    yield "nothing", []
    singles = [(kind, operation) for kind, operations in OPERATIONS.items() for operation in operations]
    for kind, operation in singles:
        yield f"{operation.name} {kind.name}", [acl(kind, operation)]
    yield "everything", [acl(kind, Operation.ALL) for kind in TYPES]
    for kind, operation in singles:
        denied = acl(kind, operation, Permission.DENY)
        yield f"all but {operation.name} {kind.name}", [acl(each, Operation.ALL) for each in TYPES] + [denied]
    for pair in (
        ((T, Operation.DESCRIBE), (T, Operation.CREATE)),
        ((T, Operation.READ), (G, Operation.READ)),
        ((T, Operation.WRITE), (X, Operation.WRITE)),
        ((G, Operation.READ), (X, Operation.WRITE)),
        ((T, Operation.DESCRIBE), (C, Operation.CREATE)),
        ((T, Operation.READ), (G, Operation.DELETE)),
        ((T, Operation.DESCRIBE), (G, Operation.DESCRIBE)),
    ):
        name = " and ".join(f"{operation.name} {kind.name}" for kind, operation in pair)
        yield name, [acl(kind, operation) for kind, operation in pair]
    yield (
        "READ GROUP and READ TOPIC and WRITE TRANSACTIONAL_ID",
        [
            acl(G, Operation.READ),
            acl(T, Operation.READ),
            acl(X, Operation.WRITE),
        ],
    )
    yield (
        "WRITE TOPIC alpha alone",
        [acl(T, Operation.WRITE, name="alpha"), acl(T, Operation.DESCRIBE, Permission.DENY, name="ghost")],
    )


BOTH = ("alpha", "ghost")


def batch() -> bytes:
    return bytes(encode_batch([Record(0, 1_700_000_000_000, None, b"v", ())]))


def partitions_of(names: tuple[str, ...] = BOTH, **partition: Any) -> list[dict[str, Any]]:
    return [{"name": name, "partitions": [partition]} for name in names]


def config_resources(with_configs: Any, with_brokers: bool = True) -> list[dict[str, Any]]:
    made = []
    for kind, name, setting, value in (
        (2, "alpha", "cleanup.policy", "delete"),
        (2, "ghost", "cleanup.policy", "delete"),
        (4, "", "log.cleaner.threads", "1"),
        (32, "g", "consumer.session.timeout.ms", "50000"),
    ):
        if kind == 4 and not with_brokers:
            continue
        made.append({"resource_type": kind, "resource_name": name, **with_configs(setting, value)})
    return made


def fetch_topic(**topic: Any) -> dict[str, Any]:
    return {
        **topic,
        "partitions": [
            {"partition": 0, "fetch_offset": 0, "log_start_offset": -1, "partition_max_bytes": 1000}
        ],
    }


def fetch_fields(topics: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "max_wait": 0,
        "min_bytes": 0,
        "session_epoch": -1,
        "topics": topics,
        "forgotten_topics_data": (),
        **more,
    }


NEW_TOPIC = {
    "num_partitions": 1,
    "replication_factor": 1,
    "assignments": (),
    "configs": [{"name": "retention.ms", "value": "-1"}],
}
PRODUCER = {"producer_id": 777, "producer_epoch": 0}
COMMIT = {
    "partition_index": 0,
    "committed_offset": 0,
    "committed_leader_epoch": -1,
    "committed_metadata": "",
}

REQUESTS: dict[str, Request] = {
    "produce": Request(
        "produce",
        lambda w: {
            "acks": -1,
            "timeout": 5000,
            "topic_data": [
                {"name": name, "partition_data": [{"index": 0, "records": batch()}]} for name in BOTH
            ],
        },
        12,
    ),
    "produce by id": Request(
        "produce",
        lambda w: {
            "acks": -1,
            "timeout": 5000,
            "topic_data": [
                {"topic_id": topic, "partition_data": [{"index": 0, "records": batch()}]}
                for topic in (w.alpha, w.unknown)
            ],
        },
    ),
    "produce in a transaction": Request(
        "produce",
        lambda w: {
            "transactional_id": "x",
            "acks": -1,
            "timeout": 5000,
            "topic_data": [
                {
                    "name": name,
                    "partition_data": [
                        {
                            "index": 0,
                            "records": bytes(
                                encode_batch(
                                    [Record(0, 1_700_000_000_000, None, b"v", ())],
                                    producer_id=777,
                                    producer_epoch=0,
                                    base_sequence=0,
                                    transactional=True,
                                )
                            ),
                        }
                    ],
                }
                for name in BOTH
            ],
        },
        11,
    ),
    "fetch": Request("fetch", lambda w: fetch_fields([fetch_topic(topic=name) for name in BOTH]), 12),
    "fetch by id": Request(
        "fetch", lambda w: fetch_fields([fetch_topic(topic_id=topic) for topic in (w.alpha, w.unknown)])
    ),
    "fetch by a follower": Request(
        "fetch", lambda w: fetch_fields([fetch_topic(topic="alpha")], replica_id=5), 12
    ),
    "list offsets": Request(
        "list_offsets",
        lambda w: {
            "replica_id": -1,
            "isolation_level": 0,
            "timeout": 1000,
            "topics": partitions_of(partition_index=0, timestamp=-1),
        },
    ),
    "metadata": Request(
        "metadata",
        lambda w: {
            "topics": [{"topic_id": None, "name": name} for name in BOTH],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
        },
    ),
    "metadata by id": Request(
        "metadata",
        lambda w: {
            "topics": [{"topic_id": topic, "name": None} for topic in (w.alpha, w.unknown)],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        },
    ),
    "metadata of all": Request(
        "metadata",
        lambda w: {
            "topics": None,
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        },
    ),
    "metadata, old": Request(
        "metadata",
        lambda w: {
            "topics": [],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
            "include_cluster_authorized_operations": True,
        },
        8,
    ),
    "metadata that creates": Request(
        "metadata",
        lambda w: {
            "topics": [{"topic_id": None, "name": "fresh"}],
            "allow_auto_topic_creation": True,
            "include_topic_authorized_operations": False,
        },
    ),
    "describe topic partitions": Request(
        "describe_topic_partitions", lambda w: {"topics": [{"name": name} for name in BOTH], "cursor": None}
    ),
    "describe all topic partitions": Request(
        "describe_topic_partitions", lambda w: {"topics": [], "cursor": None}
    ),
    "offset commit": Request(
        "offset_commit",
        lambda w: {
            "group_id": "g",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": partitions_of(**COMMIT),
        },
        9,
    ),
    "offset commit by id": Request(
        "offset_commit",
        lambda w: {
            "group_id": "g",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [{"topic_id": topic, "partitions": [COMMIT]} for topic in (w.alpha, w.unknown)],
        },
    ),
    "offset fetch": Request(
        "offset_fetch",
        lambda w: {
            "groups": [
                {"group_id": "g", "topics": [{"name": name, "partition_indexes": [0]} for name in BOTH]}
            ]
        },
        9,
    ),
    "offset fetch of all": Request(
        "offset_fetch", lambda w: {"groups": [{"group_id": "g", "topics": None}]}, 9
    ),
    "offset fetch by id": Request(
        "offset_fetch",
        lambda w: {
            "groups": [
                {
                    "group_id": "g",
                    "topics": [
                        {"topic_id": topic, "partition_indexes": [0]} for topic in (w.alpha, w.unknown)
                    ],
                }
            ]
        },
    ),
    "offset fetch, old": Request(
        "offset_fetch",
        lambda w: {"group_id": "g", "topics": [{"name": name, "partition_indexes": [0]} for name in BOTH]},
        1,
    ),
    "find group": Request("find_coordinator", lambda w: {"key_type": 0, "coordinator_keys": ["g"]}),
    "find group, old": Request("find_coordinator", lambda w: {"key_type": 0, "key": "g"}, 3),
    "find transaction": Request("find_coordinator", lambda w: {"key_type": 1, "coordinator_keys": ["x"]}),
    "join group": Request(
        "join_group",
        lambda w: {
            "group_id": "g2",
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
    ),
    "heartbeat": Request("heartbeat", lambda w: {"group_id": "g2", "generation_id": 1, "member_id": "m"}),
    "leave group": Request(
        "leave_group", lambda w: {"group_id": "g2", "members": [{"member_id": "m", "reason": None}]}
    ),
    "sync group": Request(
        "sync_group",
        lambda w: {
            "group_id": "g2",
            "generation_id": 1,
            "member_id": "m",
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": (),
        },
    ),
    "describe groups": Request(
        "describe_groups", lambda w: {"groups": ["g", "none"], "include_authorized_operations": True}
    ),
    "list groups": Request("list_groups", lambda w: {}),
    "delete groups": Request("delete_groups", lambda w: {"groups_names": ["none"]}),
    "offset delete": Request(
        "offset_delete", lambda w: {"group_id": "g", "topics": partitions_of(partition_index=3)}
    ),
    "consumer group heartbeat": Request(
        "consumer_group_heartbeat",
        lambda w: {
            "group_id": "g3",
            "member_id": "m",
            "member_epoch": 5,
            "rebalance_timeout": 1000,
            "subscribed_topic_names": ["alpha"],
            "topic_partitions": None,
        },
        0,
    ),
    "consumer group describe": Request(
        "consumer_group_describe", lambda w: {"group_ids": ["none"], "include_authorized_operations": True}
    ),
    "create topics": Request(
        "create_topics",
        lambda w: {
            "topics": [{"name": name, **NEW_TOPIC} for name in ("new", "alpha")],
            "timeout": 5000,
            "validate_only": True,
        },
    ),
    "delete topics": Request(
        "delete_topics",
        lambda w: {"topics": [{"name": "ghost", "topic_id": None}], "timeout": 5000},
    ),
    "delete a topic": Request(
        "delete_topics", lambda w: {"topics": [{"name": "doomed", "topic_id": None}], "timeout": 5000}
    ),
    "delete a topic by id": Request(
        "delete_topics", lambda w: {"topics": [{"name": None, "topic_id": w.doomed}], "timeout": 5000}
    ),
    "delete topics by id": Request(
        "delete_topics", lambda w: {"topics": [{"name": None, "topic_id": w.unknown}], "timeout": 5000}
    ),
    "delete topics, old": Request("delete_topics", lambda w: {"topic_names": ["ghost"], "timeout": 5000}, 5),
    "delete records": Request(
        "delete_records", lambda w: {"topics": partitions_of(partition_index=0, offset=0), "timeout": 1000}
    ),
    "create partitions": Request(
        "create_partitions",
        lambda w: {
            "topics": [{"name": name, "count": 2, "assignments": None} for name in BOTH],
            "timeout": 1000,
            "validate_only": True,
        },
    ),
    "init producer id": Request(
        "init_producer_id", lambda w: {"transactional_id": None, "transaction_timeout": 1000}, 5
    ),
    "init transactional producer id": Request(
        "init_producer_id", lambda w: {"transactional_id": "y", "transaction_timeout": 1000}, 5
    ),
    "add partitions to txn": Request(
        "add_partitions_to_txn",
        lambda w: {
            "v3_and_below_transactional_id": "x",
            "v3_and_below_producer_id": 777,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in BOTH],
        },
        3,
    ),
    "add partitions to txn, known topic": Request(
        "add_partitions_to_txn",
        lambda w: {
            "v3_and_below_transactional_id": "x",
            "v3_and_below_producer_id": 777,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": "alpha", "partitions": [0]}],
        },
        3,
    ),
    "add partitions to txn by a broker": Request(
        "add_partitions_to_txn",
        lambda w: {
            "transactions": [
                {
                    "transactional_id": "x",
                    **PRODUCER,
                    "verify_only": True,
                    "topics": [{"name": "alpha", "partitions": [0]}],
                }
            ]
        },
    ),
    "add offsets to txn": Request(
        "add_offsets_to_txn", lambda w: {"transactional_id": "x", **PRODUCER, "group_id": "g"}
    ),
    "end txn": Request("end_txn", lambda w: {"transactional_id": "x", **PRODUCER, "committed": True}),
    "write txn markers": Request(
        "write_txn_markers",
        lambda w: {
            "markers": [
                {
                    **PRODUCER,
                    "transaction_result": True,
                    "topics": [{"name": "ghost", "partition_indexes": [0]}],
                    "coordinator_epoch": 0,
                }
            ]
        },
    ),
    "txn offset commit": Request(
        "txn_offset_commit",
        lambda w: {
            "transactional_id": "x",
            "group_id": "g",
            **PRODUCER,
            "topics": partitions_of(**COMMIT),
        },
        4,
    ),
    "offset for leader epoch": Request(
        "offset_for_leader_epoch",
        lambda w: {
            "replica_id": -1,
            "topics": [{"topic": name, "partitions": [{"partition": 0, "leader_epoch": 0}]} for name in BOTH],
        },
    ),
    "describe producers": Request(
        "describe_producers",
        lambda w: {"topics": [{"name": name, "partition_indexes": [0]} for name in BOTH]},
    ),
    "describe transactions": Request("describe_transactions", lambda w: {"transactional_ids": ["x", "none"]}),
    "list transactions": Request("list_transactions", lambda w: {}),
    "describe configs": Request(
        "describe_configs",
        lambda w: {"resources": config_resources(lambda name, value: {"configuration_keys": [name]})},
    ),
    "alter configs": Request(
        "alter_configs",
        lambda w: {
            # Kafka refuses to replace all settings of brokers, since min.insync.replicas is among them.
            "resources": config_resources(
                lambda name, value: {"configs": [{"name": name, "value": value}]}, with_brokers=False
            ),
            "validate_only": True,
        },
    ),
    "incremental alter configs": Request(
        "incremental_alter_configs",
        lambda w: {
            "resources": config_resources(
                lambda name, value: {"configs": [{"name": name, "config_operation": 0, "value": value}]}
            ),
            "validate_only": True,
        },
    ),
    "list config resources": Request("list_config_resources", lambda w: {"resource_types": [16]}),
    "describe acls": Request("describe_acls", lambda w: filter_fields("10.9.8.7")),
    "create acls": Request(
        "create_acls",
        lambda w: {
            "creations": [
                {
                    "resource_type": C,
                    "resource_name": "wrong",
                    "principal": ANONYMOUS,
                    "host": "*",
                    "operation": 2,
                    "permission_type": 3,
                }
            ]
        },
    ),
    "delete acls": Request("delete_acls", lambda w: {"filters": [filter_fields("10.9.8.7")]}),
    "describe log dirs": Request(
        "describe_log_dirs", lambda w: {"topics": [{"topic": "ghost", "partitions": [0]}]}
    ),
    "alter replica log dirs": Request(
        "alter_replica_log_dirs",
        lambda w: {"dirs": [{"path": "/no/such/dir", "topics": [{"name": "alpha", "partitions": [0]}]}]},
    ),
    "elect leaders": Request(
        "elect_leaders",
        lambda w: {
            "election_type": 0,
            "topic_partitions": [{"topic": "alpha", "partitions": [0]}],
            "timeout": 1000,
        },
    ),
    "alter partition reassignments": Request(
        "alter_partition_reassignments",
        lambda w: {
            "timeout": 1000,
            "topics": [{"name": "ghost", "partitions": [{"partition_index": 0, "replicas": None}]}],
        },
    ),
    "list partition reassignments": Request(
        "list_partition_reassignments", lambda w: {"timeout": 1000, "topics": None}
    ),
    "describe quorum": Request(
        "describe_quorum",
        lambda w: {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
    ),
    "update features": Request(
        "update_features", lambda w: {"timeout": 1000, "feature_updates": (), "validate_only": True}
    ),
    "describe cluster": Request(
        "describe_cluster",
        lambda w: {"include_cluster_authorized_operations": True, "include_fenced_brokers": False},
    ),
    # The others about tokens are refused on a plain listener with times of -1, which kio cannot read.
    "describe delegation token": Request("describe_delegation_token", lambda w: {"owners": None}),
    "describe client quotas": Request(
        "describe_client_quotas", lambda w: {"components": (), "strict": False}
    ),
    "alter client quotas": Request(
        "alter_client_quotas",
        lambda w: {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "bob"}],
                    "ops": [{"key": "producer_byte_rate", "value": 10.0, "remove": False}],
                }
            ],
            "validate_only": True,
        },
    ),
}

KEPT = frozenset(
    (
        "name",
        "topic",
        "topic_name",
        "group_id",
        "key",
        "transactional_id",
        "resource_name",
        "resource_type",
        "partition_index",
        "partition",
        "index",
        "partition_id",
        "producer_id",
    )
)
LEFT_OUT = frozenset(
    (
        "brokers",
        "nodes",
        "node_endpoints",
        "configs",
        "members",
        "config_resources",
        "acls",
        "current_voters",
        "observers",
        "active_producers",
        "current_leader",
        "aborted_transactions",
        "record_errors",
        "diverging_epoch",
        "snapshot_id",
        "tokens",
    )
)


def projection(value: Any) -> Any:
    """What is compared of a response."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        name, content = field.name, getattr(value, field.name)
        if name.endswith(("error_code", "authorized_operations")):
            found[name] = int(content)
        elif name == "topic_id":
            found[name] = bool(content)
        elif name in KEPT:
            found[name] = content.value if isinstance(content, Enum) else content
        elif isinstance(content, tuple) and name not in LEFT_OUT:
            parts = [projection(part) for part in content if dataclasses.is_dataclass(part)]
            parts = [part for part in parts if not str(part.get("name", "")).startswith("__")]
            if parts:
                found[name] = sorted(parts, key=lambda part: json.dumps(part, sort_keys=True))
    found.pop("producer_id", None)
    return found


def tell(servers: str, only: str | None = None) -> Iterator[tuple[str, str, Any]]:
    """(request, grant, what came of it) of all pairs."""
    admin, client = Asker(servers, ADMIN), Asker(servers, CLIENT)
    create(admin, [acl(kind, Operation.ALL, host=ADMIN) for kind in TYPES])
    admin.ask(
        "create_topics",
        topics=[{"name": "alpha", **NEW_TOPIC}],
        timeout=10_000,
        validate_only=False,
    )

    def topic_id(name: str) -> Any:
        answer = admin.ask(
            "metadata",
            topics=[{"topic_id": None, "name": name}],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        return answer.topics[0].topic_id if answer.topics[0].error_code == 0 else None

    def doomed() -> uuid.UUID:
        """A topic that the next request may delete."""
        admin.ask(
            "create_topics", topics=[{"name": "doomed", **NEW_TOPIC}], timeout=10_000, validate_only=False
        )
        until(lambda: topic_id("doomed") is not None)
        return uuid.UUID(str(topic_id("doomed")))

    def away(name: str) -> None:
        admin.ask("delete_topics", topics=[{"name": name, "topic_id": None}], timeout=10_000)
        until(lambda: topic_id(name) is None)

    until(lambda: topic_id("alpha") is not None)
    world = World(topic_id("alpha"), uuid.UUID(int=98), uuid.UUID(int=99))
    until(lambda: admin.ask("find_coordinator", key_type=0, coordinator_keys=["g"]).coordinators[0].port > 0)
    until(lambda: admin.ask("find_coordinator", key_type=1, coordinator_keys=["x"]).coordinators[0].port > 0)
    commit = REQUESTS["offset commit"].fields(world)
    commit["topics"] = commit["topics"][:1]
    until(lambda: admin.ask("offset_commit", 9, **commit).topics[0].partitions[0].error_code == 0)
    until(
        lambda: (
            admin.ask(
                "init_producer_id", up_to=5, transactional_id="x", transaction_timeout=60_000
            ).error_code
            == 0
        )
    )
    for grant, acls in grants():
        set_rights(admin, acls)
        for name, request in REQUESTS.items():
            if only is not None and name != only:
                continue
            if name.startswith("delete a topic"):
                world = world._replace(doomed=doomed())
            try:
                found = projection(client.ask(request.api, request.up_to, **request.fields(world)))
            except KafkaError as error:
                found = {"failed": error.code.name}
            yield name, grant, found
            if name == "metadata that creates":
                away("fresh")
            elif name.startswith("delete a topic"):
                away("doomed")
    admin.close()
    client.close()


def until(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("the broker did not get ready")
