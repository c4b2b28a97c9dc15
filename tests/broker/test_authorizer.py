"""Verdicts, against a model that knows no index; and what a change of rights does to open connections."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.authorizer import AclIndex, Authorizer, host_address, is_same_host, super_users
from millstream.testing import Broker
from millstream.wire.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from tests.broker.authorizer_scenario import (
    ADMIN,
    ANONYMOUS,
    CLIENT,
    SETTINGS,
    TYPES,
    Asker,
    acl,
    batch,
    create,
    set_rights,
    source,
)
from tests.broker.conftest import Wire
from tests.support.waiting import wait_until

names = st.sampled_from(["a", "ab", "abc", "abd", "b", "*"])
users = st.sampled_from(["User:u", "User:v", "User:*"])
hosts = st.sampled_from(["*", "h1", "h2"])
kinds = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
operations = st.sampled_from([each for each in Operation if each >= Operation.READ])
bindings = st.builds(
    AclBinding,
    kinds,
    names,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    users,
    hosts,
    st.sampled_from([each for each in Operation if each >= Operation.ALL]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
SUPPOSED = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def naive(
    acls: list[AclBinding], user: str, host: str, operation: Operation, kind: int, name: str, default: bool
) -> bool:
    """StandardAuthorizer's rules as they are written down."""
    fitting = [
        each
        for each in acls
        if each.resource_type == kind
        and (
            name.startswith(each.name)
            if each.pattern_type == PatternType.PREFIXED
            else each.name in (name, "*")
        )
    ]
    mine = [each for each in fitting if each.principal in (user, "User:*") and each.host in (host, "*")]
    denied = [
        each
        for each in mine
        if each.permission == Permission.DENY and each.operation in (operation, Operation.ALL)
    ]
    enough = {operation, Operation.ALL, *SUPPOSED.get(operation, set())}
    allowed = [each for each in mine if each.permission == Permission.ALLOW and each.operation in enough]
    if denied:
        return False
    return bool(allowed) or (not fitting and default)


@given(
    st.lists(bindings, max_size=8),
    st.lists(bindings, max_size=3),
    st.sampled_from(["User:u", "User:v"]),
    st.sampled_from(["h1", "h2"]),
    operations,
    kinds,
    st.sampled_from(["a", "ab", "abc", "abcd", "b", "x"]),
    st.booleans(),
)
def test_verdicts_are_those_of_the_naive_model(
    acls: list[AclBinding],
    removed: list[AclBinding],
    user: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    default: bool,
) -> None:
    index = AclIndex([*acls, *removed], default)
    for each in removed:
        index.remove(each)
        index.remove(each)  # twice does not matter
    left = [each for each in dict.fromkeys(acls) if each not in removed]
    verdict, by = index.verdict(user, host, operation, kind, name)
    assert verdict is naive(left, user, host, operation, kind, name, default)
    assert by is None or by in left


@given(st.lists(bindings, max_size=8), st.sampled_from(["User:u", "User:v"]), st.sampled_from(["h1", "h2"]))
def test_on_some_resource_is_never_narrower_than_one_resource(
    acls: list[AclBinding], user: str, host: str
) -> None:
    index = AclIndex(acls)
    some = any(
        naive(acls, user, host, Operation.WRITE, ResourceType.TOPIC, name, False)
        for name in ("a", "ab", "abc", "abd", "b", "hardcode")
    )
    if some:
        assert index.on_some_resource(user, host, Operation.WRITE, ResourceType.TOPIC)


def test_super_users_are_separated_by_semicolons() -> None:
    assert super_users("User:CN=a,O=b; User:bob ;") == {"User:CN=a,O=b", "User:bob"}


def test_verdicts_on_names_that_clients_make_up_take_little_memory(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    authorizer = Authorizer([], frozenset(), False, str)
    short, long = "t" * 249, "t" * 32_000
    for name in (short, long):
        assert not authorizer.allows("User:u", "h", 0, Operation.WRITE, ResourceType.TOPIC, name)
    assert [key[-1] for key in authorizer._verdicts] == [short]
    assert len(caplog.records) == 2 and len(caplog.text) < 2000


# --- a running broker ---------------------------------------------------------------------------------------


class FromClient(Wire):
    def __init__(self, servers: str) -> None:
        with source(CLIENT):
            super().__init__(servers)


@pytest.fixture
def guarded() -> Iterator[tuple[Broker, Asker]]:
    with Broker(SETTINGS) as broker:
        admin = Asker(broker.bootstrap_servers, ADMIN)
        create(admin, [acl(kind, Operation.ALL, host=ADMIN) for kind in TYPES])
        yield broker, admin
        admin.close()


def new_topic(admin: Asker, name: str) -> None:
    fields = {"num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
    answer = admin.ask(
        "create_topics", topics=[{"name": name, **fields}], timeout=10_000, validate_only=False
    )
    assert answer.topics[0].error_code == 0


def test_a_producer_that_repeats_itself_is_stopped_by_a_change(guarded: tuple[Broker, Asker]) -> None:
    broker, admin = guarded
    new_topic(admin, "t")
    set_rights(admin, [acl(ResourceType.TOPIC, Operation.WRITE)])
    wire = FromClient(broker.bootstrap_servers)
    for _ in range(5):  # from the second one on by the fast path
        assert wire.produce("t", b"v").error_code == 0
    set_rights(admin, [])
    assert wire.produce("t", b"v").error_code == 29
    set_rights(admin, [acl(ResourceType.TOPIC, Operation.WRITE)])
    assert wire.produce("t", b"v").error_code == 0
    create(admin, [acl(ResourceType.TOPIC, Operation.WRITE, Permission.DENY)])
    assert wire.produce("t", b"v").error_code == 29
    wire.connection.close()


def test_a_consumer_that_repeats_itself_is_stopped_by_a_change(guarded: tuple[Broker, Asker]) -> None:
    broker, admin = guarded
    new_topic(admin, "t")
    large = b"x" * 100_000
    set_rights(admin, [acl(ResourceType.TOPIC, Operation.READ), acl(ResourceType.TOPIC, Operation.WRITE)])
    wire = FromClient(broker.bootstrap_servers)
    wire.produce("t", large)
    for _ in range(4):
        found = wire.fetch({"t": {0: 0}}).responses[0].partitions[0]
        assert (found.error_code, len(found.records) > len(large)) == (0, True)
    set_rights(admin, [])
    found = wire.fetch({"t": {0: 0}}).responses[0].partitions[0]
    assert (found.error_code, found.records or None) == (29, None)
    wire.connection.close()


def test_a_fetch_that_waits_is_judged_again_when_records_come(guarded: tuple[Broker, Asker]) -> None:
    broker, admin = guarded
    new_topic(admin, "t")
    set_rights(admin, [acl(ResourceType.TOPIC, Operation.READ)])
    wire = FromClient(broker.bootstrap_servers)
    found: list[object] = []

    def wait() -> None:
        answer = wire.fetch({"t": {0: 0}}, max_wait=60_000, min_bytes=1)
        part = answer.responses[0].partitions[0]
        found.append((part.error_code, part.records or None))

    waiting = threading.Thread(target=wait)
    waiting.start()
    wait_until(lambda: wire.connection._waiting != [])
    set_rights(admin, [])
    producer = Wire(broker.bootstrap_servers)
    assert producer.produce("t", b"secret").error_code == 0
    waiting.join()
    assert found == [(29, None)]
    for each in (wire, producer):
        each.connection.close()


def test_an_unacknowledged_write_that_is_not_allowed_closes_the_connection(
    guarded: tuple[Broker, Asker],
) -> None:
    from millstream.client.errors import Unreachable

    broker, admin = guarded
    new_topic(admin, "t")
    wire = FromClient(broker.bootstrap_servers)
    form = {"name": "t", "partition_data": [{"index": 0, "records": batch()}]}
    with pytest.raises(Unreachable):
        wire.ask("produce", up_to=12, transactional_id=None, acks=0, timeout=100, topic_data=[form])


def test_denials_are_in_the_log_in_kafkas_words(guarded: tuple[Broker, Asker]) -> None:
    broker, _ = guarded
    wire = FromClient(broker.bootstrap_servers)
    for _ in range(3):
        assert wire.produce("no\nsuch", b"v").error_code == 29
    wait_until(lambda: "is Denied operation = WRITE" in broker.log)
    lines = [line for line in broker.log.splitlines() if "is Denied operation" in line]
    assert lines[0].endswith(
        f"Principal = {ANONYMOUS} is Denied operation = WRITE from host = {CLIENT} on resource = "
        "Topic:LITERAL:no\\nsuch for request = Produce with resourceRefCount = 1 based on rule DefaultDeny"
    )
    wire.connection.close()


def test_acls_survive_a_restart_and_super_users_need_none(connect: Callable[[Broker], Wire]) -> None:
    settings = {"authorizer.class.name": SETTINGS["authorizer.class.name"], "super.users": ANONYMOUS}
    with Broker(settings) as broker:
        admin = Asker(broker.bootstrap_servers, ADMIN)
        create(admin, [acl(ResourceType.TOPIC, Operation.READ)])
        admin.close()
        broker.restart()
        wire = connect(broker)
        wire.create("t")
        answer = wire.ask(
            "describe_acls",
            resource_type_filter=ResourceType.TOPIC,
            resource_name_filter="t",
            pattern_type_filter=PatternType.MATCH,
            principal_filter=None,
            host_filter=None,
            operation=Operation.ANY,
            permission_type=Permission.ANY,
        )
        (resource,) = answer.resources
        assert (resource.resource_name, resource.acls[0].principal) == ("*", ANONYMOUS)


def test_addresses_are_the_same_however_they_are_written() -> None:
    """In Java's form, which Kafka compares."""
    assert host_address("::1") == "0:0:0:0:0:0:0:1"
    assert host_address("2001:DB8::00ff") == "2001:db8:0:0:0:0:0:ff"
    assert host_address("::ffff:10.0.0.9") == "10.0.0.9"
    assert [host_address(text) for text in ("10.0.0.9", "host", "*", ":::", "")] == [
        *("10.0.0.9", "host", "*", ":::", ""),
    ]
    assert is_same_host("fe80::1", "fe80::1%eth0")
    assert is_same_host("FE80:0::1%eth0", "fe80::1%eth0")
    assert not is_same_host("fe80::1%eth1", "fe80::1%eth0")


@pytest.mark.parametrize("host", ["::1", "0:0:0:0:0:0:0:1", "0000::0001"])
def test_bindings_of_an_ipv6_host(host: str) -> None:
    def index(permission: Permission) -> AclIndex:
        one = AclBinding(
            ResourceType.TOPIC, "t", PatternType.LITERAL, "User:u", host, Operation.READ, permission
        )
        everybody = one._replace(host="*", permission=Permission.ALLOW)
        return AclIndex([one] if permission is Permission.ALLOW else [one, everybody])

    def verdict(permission: Permission, client: str) -> bool:
        return index(permission).verdict("User:u", client, Operation.READ, ResourceType.TOPIC, "t")[0]

    assert verdict(Permission.ALLOW, "::1")
    assert not verdict(Permission.ALLOW, "::2")
    assert not verdict(Permission.DENY, "::1")
    assert verdict(Permission.DENY, "::2")
    allowed = index(Permission.ALLOW)
    assert allowed.on_some_resource("User:u", "::1", Operation.READ, ResourceType.TOPIC)
    assert not allowed.on_some_resource("User:u", "::2", Operation.READ, ResourceType.TOPIC)
