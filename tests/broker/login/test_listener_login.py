"""The logins of a listener when settings change: what they have learned stays. Refusals in the log."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millstream.broker.login.listener_login import ListenerLogin
from millstream.broker.login.mechanism import LoginRefused, Work
from millstream.broker.network.login_failures import LoginFailures
from millstream.settings.resolve import BrokerSettings, InvalidSetting
from tests.support.secured import TokenServer, encoded


def settings_of(server: TokenServer, **more: str) -> BrokerSettings:
    given = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": server.url,
        "sasl.oauthbearer.expected.audience": "kafka",
    }
    return BrokerSettings(given | {name.replace("__", "."): value for name, value in more.items()})


def user(login: ListenerLogin, server: TokenServer) -> str:
    message = b"n,,\x01auth=Bearer " + server.token().encode() + b"\x01\x01"
    found = login.start("OAUTHBEARER").respond(message)
    step = found.run() if isinstance(found, Work) else found
    if step.identity is None:
        raise LoginRefused("", step.response.decode())
    return step.identity.principal


def test_known_keys_outlive_a_change_of_other_settings(tmp_path: Path) -> None:
    server = TokenServer(tmp_path)
    login = _login(settings_of(server))
    assert user(login, server) == "User:alice"
    server.path.unlink()  # the token server is away
    changed = settings_of(server, log__cleaner__threads="2")
    login.check(changed)
    login.follow(changed)
    assert user(login, server) == "User:alice"


def test_another_server_has_other_keys(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    server, other = TokenServer(tmp_path), TokenServer(tmp_path / "other")
    login = _login(settings_of(server))
    login.check(settings_of(other))  # looked at, and not taken
    assert user(login, server) == "User:alice"
    login.follow(settings_of(other))
    assert user(login, other) == "User:alice"
    with pytest.raises(LoginRefused):
        user(login, server)


def test_a_long_reason_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    LoginFailures(2).failed("h", 1, "L", f"there is no user {'x' * 500_000}")
    [line] = caplog.messages
    assert "there is no user xxx" in line and len(line) < 400


def _login(settings: BrokerSettings) -> ListenerLogin:
    context = cast(Any, SimpleNamespace(name="SASL_SSL", protocol="SASL_SSL"))
    nothing = cast(Any, None)
    return ListenerLogin(context, settings, nothing, nothing, nothing, lambda: 0.0, nothing)


def test_the_unsecured_validator_takes_its_options_from_the_jaas_text() -> None:
    package = "org.apache.kafka.common.security.oauthbearer"
    handler = f"{package}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class": handler,
        "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": f"{package}.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="admin" unsecuredValidatorRequiredScope="required";',
    }
    login = _login(BrokerSettings(settings))

    def answer(scope: str) -> bytes:
        claims = {"sub": "dev", "exp": time.time() + 60, "scope": scope}
        token = f"{encoded({'alg': 'none'})}.{encoded(claims)}."
        found = login.start("OAUTHBEARER").respond(f"n,,\x01auth=Bearer {token}\x01\x01".encode())
        return (found.run() if isinstance(found, Work) else found).response

    assert answer("required") == b""
    assert b"insufficient_scope" in answer("other")
    settings["listener.name.sasl_ssl.oauthbearer.sasl.jaas.config"] = "no JAAS"
    with pytest.raises(InvalidSetting, match="LOGIN_MODULE"):
        _login(BrokerSettings(settings))
