"""Kerberos logins without Kerberos: names by rules, and the messages of the mechanism. With a real KDC:
tests/interop/test_kerberos.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from millstream.broker.login.gssapi import NO_LAYER, Acceptor, Gssapi
from millstream.broker.login.kerberos_names import KerberosNames, NoRuleApplies
from millstream.broker.login.mechanism import LoginRefused, Step, Work
from millstream.settings.values import InvalidSetting

REALM = "MILL.TEST"


@pytest.mark.parametrize(
    ("rules", "principal", "user"),
    [
        ((), "alice@MILL.TEST", "alice"),
        ((), "alice/admin@MILL.TEST", "alice"),
        ((), "alice", "alice"),
        (("RULE:[1:$1@$0](.*@ELSE)s/@.*//", "DEFAULT"), "alice@ELSE", "alice"),
        (("RULE:[2:$1.$2]s/[.]/-/g/U",), "a.b/c.d@ELSE", "A-B-C-D"),
        (("RULE:[2:$1.$2]s/[.]/-/L",), "A.B/c.d@ELSE", "a-b.c.d"),
        (("RULE:[1:$1](app-.*)s/app-(.*)/$1-app/",), "app-shop@ELSE", "shop-app"),
        (("RULE:[1:$1](x.*)", "RULE:[1:$1]/U"), "bob@ELSE", "BOB"),
        (("RULE:[1:$1]s/(b)(x)?/$2$1$1/",), "bob@ELSE", "bbob"),
    ],
)
def test_rules(rules: tuple[str, ...], principal: str, user: str) -> None:
    assert KerberosNames(rules, REALM).user(principal) == user


def test_nobody() -> None:
    with pytest.raises(NoRuleApplies, match="no rule"):
        KerberosNames((), REALM).user("alice@ELSE")
    with pytest.raises(NoRuleApplies, match="no simple name"):
        KerberosNames(("RULE:[1:$1@$0]",), REALM).user("alice@ELSE")
    with pytest.raises(NoRuleApplies, match="names part 2"):
        KerberosNames(("RULE:[1:$2]",), REALM).user("alice@ELSE")
    with pytest.raises(ValueError, match="not a Kerberos principal"):
        KerberosNames((), REALM).user("a/b/c@ELSE")
    for wrong in (
        "",
        "RULE:[x:$1]",
        "RULE:[1:$1](()",
        "DEFAULT,",
        "RULE:[1:$1]/X",
        "RULE:[1:$1]s/(a)(b)/$3/",
    ):
        with pytest.raises(InvalidSetting):
            KerberosNames((wrong,), REALM)


class Broken(Exception):
    pass


class Context:
    """Plays Kerberos: two tokens, and wrapping that shows."""

    initiator_name = "alice@MILL.TEST"

    def __init__(self, last_token: bytes | None) -> None:
        self.complete = False
        self._last = last_token

    def step(self, token: bytes) -> bytes | None:
        if token == b"bad":
            raise Broken("a token that\nnobody made")
        if token == b"first":
            return b"more, please"
        self.complete = True
        return self._last

    def wrap(self, message: bytes, encrypt: bool) -> Any:
        assert not encrypt
        return SimpleNamespace(message=b"<" + message + b">")

    def unwrap(self, message: bytes) -> Any:
        if not message.startswith(b"<"):
            raise Broken("not wrapped")
        return SimpleNamespace(message=message[1:-1])


def login(last_token: bytes | None) -> Gssapi:
    service = Acceptor(lambda: Context(last_token), (Broken,), REALM)
    return Gssapi(service, KerberosNames((), REALM).user)


def said(mechanism: Gssapi, message: bytes) -> Step:
    work = mechanism.respond(message)
    assert isinstance(work, Work)
    return work.run()


@pytest.mark.parametrize("last_token", [None, b"", b"yes"])
def test_a_login(last_token: bytes | None) -> None:
    mechanism = login(last_token)
    assert said(mechanism, b"first").response == b"more, please"
    answer = said(mechanism, b"second").response
    if last_token:
        assert answer == last_token
        answer = said(mechanism, b"").response
    assert answer == b"<" + NO_LAYER + b">"
    done = said(mechanism, b"<\x01\0\0\0kafka@localhost>")
    assert done.identity is not None and done.identity.principal == "User:alice"


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ((b"bad",), "Kerberos: a token that nobody made"),
        ((b"second", b"what"), "not wrapped"),
        ((b"second", b"<\x02\0\0\0>"), "security layer"),
        ((b"second", b"<\x01>"), "security layer"),
    ],
)
def test_refused(messages: tuple[bytes, ...], reason: str) -> None:
    mechanism = login(None)
    for message in messages[:-1]:
        said(mechanism, message)
    with pytest.raises(LoginRefused) as refused:
        said(mechanism, messages[-1])
    assert reason in refused.value.reason and reason not in str(refused.value)


def test_a_principal_that_is_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    class Name:
        def __str__(self) -> str:
            return b"\xff".decode()

    monkeypatch.setattr(Context, "initiator_name", Name())
    mechanism = login(None)
    said(mechanism, b"second")
    with pytest.raises(LoginRefused) as refused:
        said(mechanism, b"<\x01\0\0\0>")
    assert "not text" in refused.value.reason


def test_an_early_message() -> None:
    mechanism = login(b"yes")
    said(mechanism, b"second")
    with pytest.raises(LoginRefused):
        said(mechanism, b"too early")
