"""How a service finds out who its callers are, without a broker: a stand-in says who may log in."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from millstream.client import ClientConfig, Unreachable
from millstream.client.sasl import MechanismNotOffered
from millstream.client.security import Sasl
from millstream.http import cluster_login
from millstream.http.cluster_login import Caller, ClusterLogin, LoginNotChecked, LoginRefused, subject_of
from millstream.http.login_failures import TooManyTries
from millstream.rest.clients import CallerClients, ClientFactory
from millstream.rest.rest_config import RestConfig
from millstream.wire.acls import Operation
from millstream.wire.errors import ErrorCode, KafkaError

PROPERTIES = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "service",
    "sasl.password": "own",
}
HERE, THERE = "10.0.0.1", "10.0.0.2"


class Cluster:
    """Users by their passwords. `before` runs at every login."""

    def __init__(self) -> None:
        self.users = {"ann": "a", "bob": "b"}
        self.offered = ["PLAIN"]
        self.by_mechanism: dict[str, str] = {}  # users of one only
        self.logins: list[Sasl] = []
        self.before: Callable[[Sasl], None] = lambda _: None

    def operations(self, sasl: Sasl) -> int:
        self.logins.append(sasl)
        self.before(sasl)
        if sasl.mechanism not in self.offered:
            raise MechanismNotOffered("not offered", self.offered)
        only = self.by_mechanism.get(sasl.username, sasl.mechanism)
        if self.users.get(sasl.username) != sasl.password or sasl.mechanism != only:
            raise KafkaError(ErrorCode.sasl_authentication_failed, "no")
        return 1 << Operation.DESCRIBE


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def run(
    cluster: Cluster,
    test: Callable[[ClusterLogin], Awaitable[None]],
    limit: int = 3,
    mechanisms: Sequence[str] = ("PLAIN",),
) -> None:
    async def whole() -> None:
        config = ClientConfig.of("127.0.0.1:1", PROPERTIES)
        login = ClusterLogin(config, limit, mechanisms=mechanisms)
        login._operations = cluster.operations  # type: ignore[method-assign]
        try:
            await test(login)
        finally:
            login.close()

    asyncio.run(whole())


async def refused(login: ClusterLogin, user: str, password: str, address: str = HERE) -> type[Exception]:
    with pytest.raises((LoginRefused, TooManyTries, LoginNotChecked)) as caught:
        await login.password(user, password, address)
    return caught.type


def test_requests_that_come_together_cost_one_login(cluster: Cluster) -> None:
    async def test(login: ClusterLogin) -> None:
        found = await asyncio.gather(*(login.password("ann", "a", HERE) for _ in range(50)))
        assert len(cluster.logins) == 1
        assert {one.name for one in found} == {"ann"}
        assert found[0].may(Operation.DESCRIBE) and not found[0].may(Operation.ALTER)
        assert "'a'" not in repr(found[0])

    run(cluster, test)


def test_a_caller_who_was_removed_is_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_login, "BELIEVED", 0.0)

    async def test(login: ClusterLogin) -> None:
        ended: list[Caller] = []
        login.on_refused.append(ended.append)
        caller = await login.password("ann", "a", HERE)
        del cluster.users["ann"]
        assert await refused(login, "ann", "a") is LoginRefused
        assert ended == [caller]

    run(cluster, test)


def test_guessing_ends_and_those_who_were_in_go_on(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(login: ClusterLogin) -> None:
        await login.password("ann", "a", HERE)
        monkeypatch.setattr(cluster_login, "BELIEVED", 0.0)
        login._known[next(iter(login._known))].until = 0.0
        guesses = [await refused(login, "bob", f"x{number}") for number in range(5)]
        assert guesses == [LoginRefused] * 3 + [TooManyTries] * 2
        assert await refused(login, "bob", "b") is TooManyTries
        assert (await login.password("ann", "a", HERE)).name == "ann"
        assert (await login.password("bob", "b", THERE)).name == "bob"

    run(cluster, test)


def test_guesses_that_arrive_together_count_like_any_others(cluster: Cluster) -> None:
    async def test(login: ClusterLogin) -> None:
        found = await asyncio.gather(*(refused(login, "bob", f"x{number}") for number in range(10)))
        assert sorted(one.__name__ for one in found) == ["LoginRefused"] * 3 + ["TooManyTries"] * 7
        assert len(cluster.logins) == 3

    run(cluster, test)


def test_right_logins_that_arrive_together_are_no_guesses(cluster: Cluster) -> None:
    go_on = threading.Event()

    def slow(_: Sasl) -> None:
        assert go_on.wait(300)

    cluster.before = slow
    cluster.users = {f"user{number}": "right" for number in range(5)}

    async def test(login: ClusterLogin) -> None:
        asked = [asyncio.ensure_future(login.password(name, "right", HERE)) for name in cluster.users]
        await asyncio.wait(asked[3:])
        go_on.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [one.name for one in found if isinstance(one, Caller)] == ["user0", "user1", "user2"]
        assert [one.seconds for one in found if isinstance(one, TooManyTries)] == [1, 1]
        for name in cluster.users:
            assert (await login.password(name, "right", HERE)).name == name

    run(cluster, test)


def test_one_wrong_password_again_and_again_is_one_guess(cluster: Cluster) -> None:
    async def test(login: ClusterLogin) -> None:
        login._refused.clear()
        assert await refused(login, "bob", "old") is LoginRefused
        login._refused[next(iter(login._refused))] = float("inf")
        for _ in range(10):
            assert await refused(login, "bob", "old") is LoginRefused
        assert len(cluster.logins) == 1
        assert (await login.password("bob", "b", HERE)).name == "bob"

    run(cluster, test)


def test_a_cluster_that_is_away_lets_nobody_in_and_counts_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_login, "BELIEVED", 0.0)

    def away(_: Sasl) -> None:
        raise Unreachable("away")

    async def test(login: ClusterLogin) -> None:
        await login.password("ann", "a", HERE)
        cluster.before = away
        for number in range(5):
            assert await refused(login, "bob", f"x{number}") is LoginNotChecked
        assert await refused(login, "ann", "a") is LoginNotChecked
        cluster.before = lambda _: None
        assert (await login.password("ann", "a", HERE)).name == "ann"
        assert (await login.password("bob", "b", HERE)).name == "bob"

    run(cluster, test)


def test_strangers_who_wait_hold_up_no_acquaintance(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_login, "BELIEVED", 0.0)
    monkeypatch.setattr(cluster_login, "MAX_WAITING", 20)
    go_on = threading.Event()

    def slow(sasl: Sasl) -> None:
        if sasl.username != "ann":
            assert go_on.wait(300)

    async def test(login: ClusterLogin) -> None:
        await login.password("ann", "a", HERE)
        cluster.before = slow
        waiting = [asyncio.ensure_future(refused(login, f"eve{number}", "x")) for number in range(20)]
        await asyncio.sleep(0)
        try:
            assert await refused(login, "mallory", "x") is TooManyTries  # the queue has an end
            assert (await login.password("ann", "a", HERE)).name == "ann"
        finally:
            go_on.set()
        assert set(await asyncio.gather(*waiting)) == {LoginRefused}

    run(cluster, test, limit=0)


def test_what_the_listener_offers_is_used(cluster: Cluster) -> None:
    """And nothing else: what is not offered gets no second question."""

    async def test(login: ClusterLogin) -> None:
        cluster.offered = ["SCRAM-SHA-256", "GSSAPI"]
        assert (await login.password("ann", "a", HERE)).sasl.mechanism == "SCRAM-SHA-256"
        assert (await login.password("bob", "b", HERE)).sasl.mechanism == "SCRAM-SHA-256"
        assert await refused(login, "bob", "c") is LoginRefused
        tried = [one.mechanism for one in cluster.logins]
        assert tried == ["SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-256", "SCRAM-SHA-256"]
        cluster.offered = ["GSSAPI"]
        assert await refused(login, "bob", "d") is LoginNotChecked

    run(cluster, test, mechanisms=())


def test_a_password_is_tried_once_by_each_mechanism(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with Apache Kafka, where a user of PLAIN is none of SCRAM. First without showing it to the broker,
    and the next time by what worked."""
    monkeypatch.setattr(cluster_login, "BELIEVED", 0.0)
    cluster.offered = list(cluster_login.MECHANISMS)
    cluster.by_mechanism = {"ann": "PLAIN", "bob": "SCRAM-SHA-256"}

    async def test(login: ClusterLogin) -> None:
        assert (await login.password("ann", "a", HERE)).sasl.mechanism == "PLAIN"
        assert (await login.password("ann", "a", HERE)).sasl.mechanism == "PLAIN"
        assert (await login.password("bob", "b", HERE)).sasl.mechanism == "SCRAM-SHA-256"
        tried = [(one.username, one.mechanism) for one in cluster.logins]
        assert tried == [
            *(("ann", one) for one in ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "PLAIN")),
            *(("bob", one) for one in ("SCRAM-SHA-512", "SCRAM-SHA-256")),
        ]
        cluster.logins.clear()
        assert await refused(login, "ann", "x") is LoginRefused
        assert [one.mechanism for one in cluster.logins] == list(cluster_login.MECHANISMS)
        assert login._failures.count(HERE) == 1  # one password, one guess

    run(cluster, test, mechanisms=())


@pytest.mark.parametrize(
    ("protocol", "own", "given", "wanted"),
    [
        ("SASL_SSL", "SCRAM-SHA-512", (), ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")),
        ("SASL_PLAINTEXT", "SCRAM-SHA-512", (), ("SCRAM-SHA-512", "SCRAM-SHA-256")),
        ("SASL_PLAINTEXT", "PLAIN", (), ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")),
        ("SASL_PLAINTEXT", "SCRAM-SHA-512", ("plain",), ("PLAIN",)),
    ],
)
def test_no_password_travels_in_clear_text_unless_told_to(
    protocol: str, own: str, given: Sequence[str], wanted: tuple[str, ...]
) -> None:
    properties = {**PROPERTIES, "security.protocol": protocol, "sasl.mechanism": own}
    login = ClusterLogin(ClientConfig.of("127.0.0.1:1", properties), mechanisms=given)
    try:
        found = [one.mechanism for one in login._logins(b"", "ann", "a", cluster_login.PASSWORD)]
        key = [one.mechanism for one in login._logins(b"", "0123456789ABCDEF", "a", cluster_login.PASSWORD)]
    finally:
        login.close()
    assert tuple(found) == wanted
    assert sorted(key) == sorted(wanted) and ("PLAIN" not in wanted or key[0] == "PLAIN")  # an API key


def test_a_mechanism_that_is_none_is_said_so() -> None:
    with pytest.raises(ValueError, match="GSSAPI is unknown"):
        ClusterLogin(ClientConfig.of("127.0.0.1:1", PROPERTIES), mechanisms=["GSSAPI"])


@pytest.mark.parametrize(
    ("user", "password"), [("", "x"), ("ann", ""), ("ann\0bob", "b"), ("x", "ann\0a"), ("ann", "a" * 5000)]
)
def test_what_cannot_be_a_login_is_not_tried(cluster: Cluster, user: str, password: str) -> None:
    async def test(login: ClusterLogin) -> None:
        assert await refused(login, user, password) is LoginRefused
        assert not cluster.logins

    run(cluster, test)


@pytest.mark.parametrize("token", ["", "a" * 65_537, "a b\x00c", "\u00e9"])
def test_what_cannot_be_a_token_is_not_tried(cluster: Cluster, token: str) -> None:
    async def test(login: ClusterLogin) -> None:
        with pytest.raises(LoginRefused):
            await login.token(token, HERE)
        assert not cluster.logins

    run(cluster, test)


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "a.e30.c", "a.W10.c", "." * 10, "a.bnVsbA.c", "é.é.é"])
def test_a_token_without_a_name(token: str) -> None:
    assert subject_of(token) == "token"


def test_a_cluster_without_logins_is_said_so() -> None:
    with pytest.raises(ValueError, match=r"authentication\.user\.file"):
        ClusterLogin(ClientConfig.of("127.0.0.1:1"))


def test_a_caller_who_waits_waits_alone(tmp_path: Path) -> None:
    """All threads of one caller's clients are busy; another's are not."""
    config = RestConfig(
        {"bootstrap.servers": "127.0.0.1:1", **{f"client.{k}": v for k, v in PROPERTIES.items()}}
    )
    go_on = threading.Event()

    async def test() -> None:
        callers = CallerClients(ClientFactory(config), lambda _: None)
        slow, quick = (
            callers.of(Caller(name, Sasl("PLAIN", name, "x"), name.encode(), 0)) for name in ("slow", "quick")
        )
        blocked: list[Any] = [
            asyncio.ensure_future(slow.kafka.run(lambda _: go_on.wait(300))) for _ in range(20)
        ]
        blocked += [asyncio.ensure_future(slow.instances.run(lambda: go_on.wait(300))) for _ in range(100)]
        try:
            await asyncio.sleep(0)
            assert await quick.kafka.run(lambda _: "answered") == "answered"
            assert await quick.instances.run(lambda: "answered") == "answered"
            assert not any(one.done() for one in blocked)
        finally:
            go_on.set()
        await asyncio.gather(*blocked)
        await callers.close()

    asyncio.run(test())


def test_what_a_closed_set_says_is_nothing_to_the_next() -> None:
    config = RestConfig(
        {"bootstrap.servers": "127.0.0.1:1", **{f"client.{k}": v for k, v in PROPERTIES.items()}}
    )

    async def test() -> None:
        factory = ClientFactory(config)
        make, listeners, forgotten = factory.of, [], []

        def of(caller: Caller, on_login_refused: Callable[[], None], kept: None) -> Any:
            listeners.append(on_login_refused)
            return make(caller, on_login_refused, kept)

        factory.of = of  # type: ignore[method-assign]
        callers = CallerClients(factory, forgotten.append)
        caller = Caller("ann", Sasl("PLAIN", "ann", "x"), b"ann", 0)
        callers.of(caller)
        callers.end(caller)
        second = callers.of(caller)
        listeners[0]()
        await asyncio.sleep(0)
        assert callers.of(caller) is second and not forgotten
        listeners[1]()
        await asyncio.sleep(0)
        assert len(callers) == 0 and forgotten == [caller]
        await callers.close()

    asyncio.run(test())


def test_sets_of_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.rest.clients.MAX_CALLERS", 2)
    config = RestConfig(
        {"bootstrap.servers": "127.0.0.1:1", **{f"client.{k}": v for k, v in PROPERTIES.items()}}
    )

    async def test() -> None:
        callers = CallerClients(ClientFactory(config), lambda _: None)
        first, second, third = (
            Caller(name, Sasl("PLAIN", name, "x"), name.encode(), 0) for name in ("one", "two", "three")
        )
        kept = callers.of(first)
        kept.requests += 1
        callers.of(second)
        callers.of(third)  # in place of the second, which is idle
        assert len(callers) == 2 and callers.of(first) is kept
        callers.of(third).requests += 1
        with pytest.raises(Exception, match="at work"):
            callers.of(second)
        monkeypatch.setattr("millstream.rest.clients.IDLE_SECONDS", -1.0)
        kept.requests = 0
        callers.expire()
        assert len(callers) == 1
        await callers.close()

    asyncio.run(test())
