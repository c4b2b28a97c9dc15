"""Decisions about ACLs, quotas, tokens and accounts; and their records in log and image."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.cluster import scram, security
from millstream.cluster.commands import OK, Command
from millstream.cluster.context import Context
from millstream.cluster.controller import decide
from millstream.cluster.image import Image, difference
from millstream.cluster.metadata_records import decode, encode
from millstream.cluster.scram import AlterScram
from millstream.cluster.security_commands import (
    AlterAccounts,
    AlterQuotas,
    CreateAcls,
    CreateToken,
    DeleteAcls,
    ExpireToken,
    QuotaChange,
    RemoveExpiredTokens,
    RenewToken,
)
from millstream.cluster.security_records import Scram, ScramGone
from millstream.wire.acls import AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType
from millstream.wire.errors import ErrorCode, KafkaError

READ_ORDERS = AclBinding(
    ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:bob", "*", Operation.READ, Permission.ALLOW
)


class World:
    def __init__(self) -> None:
        self.image = Image()

    def do(self, command: Command[Any]) -> Any:
        decision = decide(self.image, command, Context())
        _, records = decode(encode(decision.records))  # as they come back from the log
        before = self.image.copy()
        self.delta = self.image.apply(records, self.image.version + 1)
        self.records = records
        assert difference(before, self.image).security == self.delta.security
        if isinstance(decision.reply, KafkaError):
            raise decision.reply
        return decision.reply


@pytest.fixture
def world() -> World:
    return World()


def test_an_acl_is_created_once_and_survives_a_snapshot(world: World) -> None:
    assert world.do(CreateAcls([READ_ORDERS, READ_ORDERS])) == [OK, OK]
    assert list(world.image.acls) == [READ_ORDERS]
    assert world.do(CreateAcls([READ_ORDERS])) == [OK]
    assert world.records == []
    again = Image()
    again.load(world.image.records(), world.image.version)
    assert again.acls == world.image.acls


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"resource_type": ResourceType.ANY}, "Invalid resourceType ANY"),
        ({"resource_type": 77}, "Invalid resourceType UNKNOWN"),
        ({"pattern_type": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"operation": Operation.ANY}, "Invalid operation ANY"),
        ({"permission": Permission.ANY}, "Invalid permissionType ANY"),
        ({"name": ""}, "Invalid empty resource name"),
        (
            {"resource_type": ResourceType.CLUSTER},
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        (
            {"principal": "bob"},
            "Could not parse principal from `bob` (no colon is present separating the principal type from "
            "the principal name)",
        ),
    ],
)
def test_a_wrong_acl_is_refused_and_the_others_are_created(
    world: World, wrong: dict[str, Any], message: str
) -> None:
    bad, good = world.do(CreateAcls([READ_ORDERS._replace(**wrong), READ_ORDERS]))
    assert (bad.error, bad.message, good) == (ErrorCode.invalid_request, message, OK)
    assert list(world.image.acls) == [READ_ORDERS]


def test_filters_delete_what_they_match(world: World) -> None:
    prefixed = READ_ORDERS._replace(name="ord", pattern_type=PatternType.PREFIXED)
    every = READ_ORDERS._replace(name="*")
    other = READ_ORDERS._replace(name="order")
    world.do(CreateAcls([READ_ORDERS, prefixed, every, other]))
    match = AclFilter(ResourceType.TOPIC, "orders", PatternType.MATCH)
    assert [acl for acl in world.image.acls if match.matches(acl)] == [READ_ORDERS, prefixed, every]
    exact, nothing, wrong = world.do(
        DeleteAcls(
            [
                AclFilter(name="orders"),
                AclFilter(principal="User:alice"),
                AclFilter(operation=99),
            ]
        )
    )
    assert (list(exact.deleted), list(nothing.deleted)) == ([READ_ORDERS], [])
    assert (wrong.error, wrong.message) == (ErrorCode.invalid_request, "Unknown entryFilter.")
    world.do(DeleteAcls([match]))
    assert list(world.image.acls) == [other]


def test_one_request_has_a_limited_number_of_filters(world: World) -> None:
    world.do(CreateAcls([READ_ORDERS]))
    *_, last, one_more = world.do(DeleteAcls([AclFilter(name="x")] * 1000 + [AclFilter()]))
    assert (last.error, one_more.error) == (ErrorCode.none, ErrorCode.invalid_request)
    assert list(world.image.acls) == [READ_ORDERS]


def test_filters_with_a_name_are_not_held_against_all_acls(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"orders-{number}" for number in range(50)]
    world.do(CreateAcls([READ_ORDERS._replace(name=name) for name in names]))
    held: list[AclBinding] = []
    matches = AclFilter.matches

    def counted(wanted: AclFilter, binding: AclBinding) -> bool:
        held.append(binding)
        return matches(wanted, binding)

    monkeypatch.setattr(AclFilter, "matches", counted)
    replies = world.do(DeleteAcls([AclFilter(name=name) for name in names + names]))
    assert [len(reply.deleted) for reply in replies] == [1] * 100
    assert len(held) == 50
    assert not world.image.acls


def test_what_filters_find_together_is_limited(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answers with all it found, also with what another has deleted."""
    monkeypatch.setattr(security, "MAX_FOUND", 25)
    world.do(CreateAcls([READ_ORDERS._replace(name=f"orders-{number}") for number in range(10)]))
    replies = world.do(DeleteAcls([AclFilter()] * 4))
    assert [len(reply.deleted) for reply in replies] == [10, 10, 0, 0]
    assert replies[2].error == ErrorCode.invalid_request


def test_one_request_sets_a_limited_number_of_quotas(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "MAX_RECORDS_PER_COMMAND", 2)
    changes = [QuotaChange((("user", name),), [("producer_byte_rate", 1024.0)]) for name in "abc"]
    replies = world.do(AlterQuotas(changes))
    assert [reply.error for reply in replies] == [ErrorCode.none] * 2 + [ErrorCode.invalid_request]
    assert len(world.image.quotas) == 2


@pytest.mark.parametrize("renewers", [["User:a"] * 101, ["User:" + "a" * 513]])
def test_a_token_is_of_a_limited_size(world: World, renewers: list[str]) -> None:
    with pytest.raises(KafkaError) as refused:
        world.do(CreateToken("t", "User:owner", "User:owner", renewers, 0, 1000, 1000))
    assert refused.value.code == ErrorCode.invalid_request
    assert not world.image.tokens


def test_quotas_are_set_changed_and_removed(world: World) -> None:
    bob = (("user", "bob"),)
    change = AlterQuotas([QuotaChange(bob, [("producer_byte_rate", 1024.0), ("request_percentage", 12.5)])])
    assert world.do(change) == [OK]
    assert world.do(change) == [OK]
    assert world.records == []
    world.do(AlterQuotas([QuotaChange(bob, [("producer_byte_rate", None)])], validate_only=True))
    assert world.image.quotas[bob].values == {"producer_byte_rate": 1024.0, "request_percentage": 12.5}
    world.do(AlterQuotas([QuotaChange(bob, [("producer_byte_rate", None), ("request_percentage", None)])]))
    assert not world.image.quotas
    assert world.delta.changed("quotas") and not world.delta.changed("acls")


@pytest.mark.parametrize(
    ("entity", "operations", "message"),
    [
        ((), [("producer_byte_rate", 1.0)], "Invalid empty client quota entity"),
        ((("user", "bob"),), [("no_such_rate", 1.0)], "Invalid configuration key no_such_rate"),
        ((("user", "bob"),), [("producer_byte_rate", -1.0)], "Quota producer_byte_rate must be greater"),
        ((("user", "bob"),), [("producer_byte_rate", float("nan"))], "must be greater than 0"),
        ((("user", "bob"),), [("producer_byte_rate", 1.5)], "cannot be a fractional value"),
        ((("user", "bob"),), [("producer_byte_rate", 1e30)], "too large for a LONG"),
        ((("ip", "10.0.0.1"),), [("connection_creation_rate", 3e9)], "too large for an INT"),
        ((("ip", "10.0.0.1"),), [("producer_byte_rate", 1.0)], "Invalid configuration key"),
        ((("ip", "10.0.0.1"), ("user", "bob")), [], "IP entity should not be combined"),
        ((("ip", "300.1.1.1"),), [], "is not a valid IP or resolvable host"),
        ((("planet", "earth"),), [], "Unhandled client quota entity type: planet"),
        ((("user", "bob"),), [("request_percentage", 1.0), ("request_percentage", 2.0)], "Duplicate quota"),
    ],
)
def test_wrong_quotas_are_refused(world: World, entity: Any, operations: Any, message: str) -> None:
    good = QuotaChange((("client-id", None),), [("consumer_byte_rate", 5.0)])
    bad_reply, good_reply = world.do(AlterQuotas([QuotaChange(entity, operations), good]))
    assert bad_reply.error is ErrorCode.invalid_request
    assert message in (bad_reply.message or "")
    assert good_reply == OK
    assert list(world.image.quotas) == [(("client-id", None),)]


def test_the_first_thing_wrong_with_a_scram_user_is_told(world: World) -> None:
    twice = [ScramGone("", 1), ScramGone("", 1)]
    assert world.do(AlterScram(deletions=twice))[""].message == "Username must not be empty"
    found = world.do(AlterScram([Scram("bob", 1, "aa", "bb", "cc", 4096)] * 2))
    assert found["bob"].error is ErrorCode.duplicate_resource
    assert not world.image.scram


def test_one_request_changes_a_limited_number_of_scram_users(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scram, "MAX_CHANGES", 2)
    found = world.do(AlterScram([Scram(name, 1, "aa", "bb", "cc", 4096) for name in "abc"]))
    assert [found[name].error for name in "abc"] == [ErrorCode.none] * 2 + [ErrorCode.policy_violation]
    assert list(world.image.scram) == [("a", 1), ("b", 1)]


def test_salts_are_of_a_limited_length(world: World) -> None:
    found = world.do(AlterScram([Scram("bob", 1, "aa" * 501, "bb", "cc", 4096)]))
    assert found["bob"].error is ErrorCode.unacceptable_credential
    assert "salt" in (found["bob"].message or "")
    assert world.do(AlterScram([Scram("bob", 1, "aa" * 500, "bb", "cc", 4096)])) == {"bob": OK}


def test_the_life_of_a_token(world: World) -> None:
    token = world.do(CreateToken("t1", "User:a", "User:svc", ["User:b"], 1000, 500, 200))
    assert (token.expires_ms, token.max_ms) == (1200, 1500)
    assert world.do(RenewToken("t1", "User:b", 1150, 200)) == 1350
    assert world.do(RenewToken("t1", "User:a", 1340, 10_000)) == 1500
    for command, error in (
        (RenewToken("t1", "User:c", 1340, 10), ErrorCode.delegation_token_owner_mismatch),
        # Who requested it for somebody else is no renewer.
        (RenewToken("t1", "User:svc", 1340, 10), ErrorCode.delegation_token_owner_mismatch),
        (ExpireToken("t1", "User:svc", 1340, -1), ErrorCode.delegation_token_owner_mismatch),
        (RenewToken("t2", "User:a", 1340, 10), ErrorCode.delegation_token_not_found),
        (ExpireToken("t1", "User:a", 1501, 10), ErrorCode.delegation_token_expired),
        # In Kafka's order, which is not the same for both.
        (RenewToken("t1", "User:c", 1501, 10), ErrorCode.delegation_token_expired),
        (ExpireToken("t1", "User:c", 1501, 10), ErrorCode.delegation_token_owner_mismatch),
    ):
        with pytest.raises(KafkaError) as refused:
            world.do(command)
        assert refused.value.code is error
    assert world.do(RemoveExpiredTokens(1400)) == 0
    assert world.do(RemoveExpiredTokens(1501)) == 1
    assert not world.image.tokens
    world.do(CreateToken("t3", "User:a", "User:a", [], 1000, 500, 200))
    assert world.do(ExpireToken("t3", "User:a", 1010, -1)) == 1010
    assert not world.image.tokens


def test_accounts_and_their_keys_go_together(world: World) -> None:
    world.do(AlterAccounts(accounts=[("sa-1", "billing", "")]))
    world.do(AlterAccounts(keys=[("K1", "sa-1", "00ff", 5, -1, "")]))
    for wrong, error in (
        (AlterAccounts(accounts=[("sa-2", "billing", "")]), ErrorCode.duplicate_resource),
        (AlterAccounts(accounts=[("sa-2", "", "")]), ErrorCode.invalid_request),
        (AlterAccounts(keys=[("K2", "sa-9", "00", 5, -1, "")]), ErrorCode.resource_not_found),
        (AlterAccounts(removed_keys=["K9"]), ErrorCode.resource_not_found),
    ):
        with pytest.raises(KafkaError) as refused:
            world.do(wrong)
        assert refused.value.code is error
    world.do(AlterAccounts(removed_accounts=["sa-1"]))
    assert not world.image.accounts and not world.image.api_keys
