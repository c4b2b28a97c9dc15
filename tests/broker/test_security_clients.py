"""Rights, tokens and keys with a login: by other people's clients, and by our tools."""

from __future__ import annotations

import base64
import json
import struct
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from millstream.client.cluster import Cluster
from millstream.client.config import ClientConfig
from millstream.client.messages import exchange, request_header
from millstream.client.sasl import Scram
from millstream.client.security import Sasl
from millstream.client.security_admin import SecurityAdmin
from millstream.wire.acls import AclBinding as Binding
from millstream.wire.acls import AclFilter, Operation, PatternType, Permission
from millstream.wire.acls import ResourceType as Kind
from millstream.wire.envelope import BROKER_ITSELF
from millstream.wire.errors import ErrorCode, KafkaError
from tests.broker.login.test_logins import Raw
from tests.support.secured import PASSWORD, Secured
from tests.support.waiting import wait_until

LISTENER = "SASL_PLAINTEXT"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """The plain listener is the administrator's: whoever comes there is a super user."""
    settings: dict[str, object] = {
        "authorizer__class__name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super__users": "User:ANONYMOUS",
        "delegation__token__secret__key": "the-secret-of-tokens",
    }
    with Secured(tmp_path_factory.mktemp("secured"), **settings) as secured:
        secured.add_user()
        yield secured


def our_admin(secured: Secured, *login: str, **who: str) -> SecurityAdmin:
    """The super user's; or of somebody who logs in."""
    protocol = LISTENER if login else "PLAINTEXT"
    properties = secured.properties(protocol, *login, **who)
    return SecurityAdmin(Cluster(ClientConfig.of(secured.servers[protocol], properties)))


def send(conf: dict[str, Any], topic: str) -> str:
    """What became of a record: "" or the error."""
    found: list[str] = []
    producer = Producer({**conf, "message.timeout.ms": 30_000, "allow.auto.create.topics": True})
    producer.produce(topic, b"v", on_delivery=lambda error, _: found.append(error.name() if error else ""))
    producer.flush(60)
    return found[0]


def test_confluents_admin_makes_lists_and_deletes_acls_that_count(secured: Secured) -> None:
    admin = AdminClient({"bootstrap.servers": secured.servers["PLAINTEXT"]})
    alice = secured.rdkafka(LISTENER, "SCRAM-SHA-512")
    assert send(alice, "ck-orders") == "TOPIC_AUTHORIZATION_FAILED"
    bindings = [
        AclBinding(
            ResourceType.TOPIC,
            "ck-",
            ResourcePatternType.PREFIXED,
            "User:alice",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for operation in (AclOperation.WRITE, AclOperation.CREATE)
    ]
    for made in admin.create_acls(bindings).values():
        made.result(30)
    assert send(alice, "ck-orders") == ""
    wanted = AclBindingFilter(
        ResourceType.TOPIC,
        "ck-orders",
        ResourcePatternType.MATCH,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    listed = admin.describe_acls(wanted).result(30)
    assert {acl.operation for acl in listed} == {AclOperation.WRITE, AclOperation.CREATE}
    (deleted,) = [done.result(30) for done in admin.delete_acls([wanted]).values()]
    assert len(deleted) == 2
    assert send(alice, "ck-orders") == "TOPIC_AUTHORIZATION_FAILED"
    as_alice = AdminClient(alice)
    refused = as_alice.create_acls(bindings)
    with pytest.raises(KafkaException) as error:
        next(iter(refused.values())).result(30)
    assert error.value.args[0].name() == "CLUSTER_AUTHORIZATION_FAILED"


def test_kafka_pythons_admin_makes_lists_and_deletes_acls(secured: Secured) -> None:
    from kafka.admin import (
        ACL,
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        ACLResourcePatternType,
        KafkaAdminClient,
        ResourcePattern,
        ResourcePatternFilter,
    )
    from kafka.admin import ResourceType as PythonType

    admin = KafkaAdminClient(bootstrap_servers=secured.servers["PLAINTEXT"])
    try:
        pattern = ResourcePattern(PythonType.TOPIC, "kp-topic", ACLResourcePatternType.LITERAL)
        acl = ACL("User:bob", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)
        made = admin.create_acls([acl])
        assert [made["succeeded"], made["failed"]] == [[acl], []]
        wanted = ACLFilter(
            None,
            None,
            ACLOperation.ANY,
            ACLPermissionType.ANY,
            ResourcePatternFilter(PythonType.TOPIC, "kp-topic", ACLResourcePatternType.ANY),
        )
        found, error = admin.describe_acls(wanted)
        assert (found, error.errno) == ([acl], 0)
        admin.delete_acls([wanted])
        assert admin.describe_acls(wanted)[0] == []
    finally:
        admin.close()


def _allow(secured: Secured, kind: Kind, name: str, operation: Operation) -> Binding:
    binding = Binding(kind, name, PatternType.LITERAL, "User:alice", "*", operation, Permission.ALLOW)
    our_admin(secured).create_acls([binding])
    return binding


def test_an_expression_of_a_consumer_matches_what_it_may_describe(secured: Secured) -> None:
    """KIP-848: the broker resolves it, so the broker has to leave out what the member may not see."""
    admin = AdminClient({"bootstrap.servers": secured.servers["PLAINTEXT"]})
    for made in admin.create_topics([NewTopic("re-mine", 1), NewTopic("re-other", 1)]).values():
        made.result(30)
    _allow(secured, Kind.GROUP, "re-group", Operation.READ)
    _allow(secured, Kind.TOPIC, "re-mine", Operation.READ)
    properties = secured.properties(LISTENER, "SCRAM-SHA-512")
    cluster = Cluster(ClientConfig.of(secured.servers[LISTENER], properties))
    member: dict[str, Any] = {"member_id": "m", "member_epoch": 0}

    def assigned() -> int | None:
        """How many partitions the next heartbeat gives; None where nothing has changed."""
        first = member["member_epoch"] == 0
        answer = cluster.any().request(
            "consumer_group_heartbeat",
            group_id="re-group",
            instance_id=None,
            rack_id=None,
            rebalance_timeout=timedelta(seconds=60 if first else -0.001),
            subscribed_topic_names=None,
            subscribed_topic_regex="re-.*" if first else None,
            server_assignor=None,
            topic_partitions=() if first else None,
            **member,
        )
        if answer.error_code is ErrorCode.not_coordinator:  # of a topic that was made just now
            return None
        assert answer.error_code is ErrorCode.none
        member["member_epoch"] = answer.member_epoch
        if answer.assignment is None:
            return None
        return sum(len(each.partitions) for each in answer.assignment.topic_partitions)

    cluster.any().request("find_coordinator", key_type=0, coordinator_keys=["re-group"])
    wait_until(lambda: assigned() == 1)
    right = _allow(secured, Kind.TOPIC, "re-other", Operation.DESCRIBE)
    wait_until(lambda: assigned() == 2)
    our_admin(secured).delete_acls([AclFilter(*right)])
    wait_until(lambda: assigned() == 1)
    cluster.close()


def test_a_token_is_made_used_renewed_and_expired(secured: Secured) -> None:
    alice = our_admin(secured, "SCRAM-SHA-512")
    token = alice.create_token(["User:bob"], -1, "")
    assert (token.owner, token.requester, token.renewers) == ("User:alice", "User:alice", ("User:bob",))
    assert token.expires_ms <= token.max_ms
    assert [each.token_id for each in alice.describe_tokens(None)] == [token.token_id]
    bob = our_admin(secured, "PLAIN", "bob-secret", "bob")
    assert bob.renew_token(token.hmac, 1000) < token.expires_ms
    day = 86_400_000  # delegation.token.expiry.time.ms: nobody gets more at a time
    for period in (0, -1, 5 * day, 2**63 - 1, -(2**63)):
        before = time.time_ns() // 1_000_000
        now = bob.renew_token(token.hmac, period)
        assert before + day <= now <= time.time_ns() // 1_000_000 + day, period
    assert bob.describe_tokens(["User:carol"]) == []
    with pytest.raises(KafkaError) as refused:
        bob.create_token([], -1, "User:alice")
    assert refused.value.code is ErrorCode.delegation_token_authorization_failed
    with pytest.raises(KafkaError) as refused:
        our_admin(secured).create_token([], -1, "")
    assert refused.value.code is ErrorCode.delegation_token_request_not_allowed
    # The longest period there is: as long as the token may last.
    assert alice.expire_token(token.hmac, 2**63 - 1) == token.max_ms
    longest = alice.create_token([], 2**63 - 1, "")
    assert longest.max_ms - longest.issued_ms == 7 * day
    alice.expire_token(longest.hmac, -1)
    alice.expire_token(token.hmac, -1)
    with pytest.raises(KafkaError) as refused:
        alice.renew_token(token.hmac, -1)
    assert refused.value.code is ErrorCode.delegation_token_not_found


def test_a_service_with_the_right_makes_tokens_for_others(secured: Secured) -> None:
    right = Binding(
        Kind.USER,
        "User:carol",
        PatternType.LITERAL,
        "User:bob",
        "*",
        Operation.CREATE_TOKENS,
        Permission.ALLOW,
    )
    our_admin(secured).create_acls([right])
    bob = our_admin(secured, "PLAIN", "bob-secret", "bob")
    token = bob.create_token([], -1, "User:carol")
    assert (token.owner, token.requester) == ("User:carol", "User:bob")


def test_a_right_on_all_users_is_none_on_super_users_or_brokers(secured: Secured) -> None:
    everybody = Binding(
        Kind.USER, "*", PatternType.LITERAL, "User:bob", "*", Operation.CREATE_TOKENS, Permission.ALLOW
    )
    our_admin(secured).create_acls([everybody])
    bob = our_admin(secured, "PLAIN", "bob-secret", "bob")
    assert bob.create_token([], -1, "User:dave").owner == "User:dave"
    for owner, code in (
        ("User:ANONYMOUS", ErrorCode.delegation_token_authorization_failed),
        (BROKER_ITSELF, ErrorCode.invalid_principal_type),  # the controller would take its requests for ours
    ):
        with pytest.raises(KafkaError) as refused:
            bob.create_token([], -1, owner)
        assert refused.value.code is code


def test_a_token_does_not_make_tokens_behind_another_handshake(secured: Secured) -> None:
    alice = our_admin(secured, "SCRAM-SHA-512")
    token = alice.create_token([], -1, "")
    raw = Raw(secured.servers[LISTENER])
    client = Scram(
        Sasl("SCRAM-SHA-512", token.token_id, base64.b64encode(token.hmac).decode()), "nonce-of-a-token"
    )
    client._bare += ",tokenauth=true"
    raw.ask("sasl_handshake", 1, mechanism="SCRAM-SHA-512")
    challenge = raw.ask("sasl_authenticate", 1, auth_bytes=client.first)
    last = raw.ask("sasl_authenticate", 1, auth_bytes=client.answer(bytes(challenge.auth_bytes)))
    client.finish(bytes(last.auth_bytes))
    making = exchange("create_delegation_token", 1)
    parts = [
        request_header(17, 1, 1, b"raw", False)
        + exchange("sasl_handshake", 1).encode({"mechanism": "SCRAM-SHA-512"}),
        request_header(38, 1, 2, b"raw", False) + making.encode({"renewers": [], "max_lifetime": -1}),
    ]
    raw.socket.sendall(b"".join(struct.pack(">i", len(part)) + part for part in parts))
    raw.read()
    answer = raw.read()
    if answer is not None:  # else the login was in the way
        made = making.decode(memoryview(answer)[4:])
        assert made.error_code is ErrorCode.delegation_token_request_not_allowed
    raw.close()
    alice.expire_token(token.hmac, -1)


def test_an_api_key_logs_in_as_its_account_until_it_is_deleted(secured: Secured) -> None:
    admin = our_admin(secured)
    account = admin.create_account("billing", "invoices")
    assert account in admin.accounts()
    key, secret = admin.create_key(account.id, "", None)
    assert [each.id for each in admin.api_keys()] == [key.id]
    conf = secured.rdkafka(LISTENER, "PLAIN", secret, key.id)
    assert send(conf, "bills") == "TOPIC_AUTHORIZATION_FAILED"
    rights = [
        Binding(
            Kind.TOPIC,
            "bills",
            PatternType.LITERAL,
            f"User:{account.id}",
            "*",
            operation,
            Permission.ALLOW,
        )
        for operation in (Operation.WRITE, Operation.CREATE)
    ]
    admin.create_acls(rights)
    assert send(conf, "bills") == ""
    with pytest.raises(KafkaError) as refused:
        our_admin(secured, "SCRAM-SHA-512").accounts()
    assert refused.value.code is ErrorCode.cluster_authorization_failed
    admin.delete_account(account.id)
    assert (admin.accounts(), admin.api_keys()) == ([], [])
    with pytest.raises(KafkaError) as refused:
        our_admin(secured, "PLAIN", secret, key.id).describe_tokens(None)
    assert refused.value.code is ErrorCode.sasl_authentication_failed
    assert secret not in secured.broker.log
    assert PASSWORD not in secured.broker.log


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_a_quota_counts_over_tls(secured: Secured, protocol: str) -> None:
    """The throttle time is told, and the connection listens again."""
    admin, client_id = our_admin(secured), f"greedy-{protocol}"
    admin.alter_quotas((("client-id", client_id),), {"request_percentage": 0.01})
    login = ("SCRAM-SHA-512",) if protocol == "SASL_SSL" else ()
    properties = {**secured.properties(protocol, *login), "client.id": client_id}
    cluster = Cluster(ClientConfig.of(secured.servers[protocol], properties))

    def throttle_time() -> float:
        answer = cluster.any().request(
            "metadata",
            topics=[],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        return float(answer.throttle_time.total_seconds())

    wait_until(lambda: throttle_time() > 0)
    admin.alter_quotas((("client-id", client_id),), {"request_percentage": None})
    assert throttle_time() == 0
    cluster.close()


def test_the_commands(secured: Secured, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from millstream.cli.app import main

    def run(*words: str) -> str:
        code = main([*words, "--bootstrap-server", servers])
        out = capsys.readouterr()
        assert code == 0, out
        return out.out

    servers = secured.servers["PLAINTEXT"]
    made = json.loads(run("service-accounts", "create", "robots", "-o", "json"))
    assert "robots" in run("service-accounts", "list")
    key = json.loads(run("api-keys", "create", "--account", "robots", "--lifetime", "30", "-o", "json"))
    listed = run("api-keys", "list")
    assert key["id"] in listed and key["secret"] not in listed
    assert made[0]["id"] in listed
    run("api-keys", "delete", key["id"])
    run("service-accounts", "delete", "robots")
    assert "robots" not in run("service-accounts", "list")
    properties = tmp_path / "client.properties"
    lines = secured.properties(LISTENER, "SCRAM-SHA-512")
    properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    servers = secured.servers[LISTENER]
    config = ("--command-config", str(properties))
    text = run("delegation-tokens", "--create", "--max-life-time-period", "-1", *config)
    assert "Created delegation token with tokenId : " in text
    (token,) = json.loads(run("delegation-tokens", "--describe", "-o", "json", *config))
    renewed = run(
        "delegation-tokens", "--renew", "--renew-time-period", "-1", "--hmac", token["hmac"], *config
    )
    assert "Completed renew operation. New expiry date : " in renewed
    run("delegation-tokens", "--expire", "--expiry-time-period", "-1", "--hmac", token["hmac"], *config)
    assert "Total number of tokens : 0" in run("delegation-tokens", "--describe", *config)
