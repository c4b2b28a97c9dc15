"""Secrets of every kind that a broker gets to know are nowhere to be seen: not in its log, metrics and audit
log, not in DescribeConfigs and other answers, not in errors, not in what `millstream metadata dump` shows."""

# ruff: noqa: S105

from __future__ import annotations

import base64
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from millstream.cli.app import main
from millstream.client import Admin, ClientConfig, Cluster
from millstream.client.security_admin import SecurityAdmin
from millstream.wire.errors import KafkaError
from tests.support.secured import PACKAGE, PASSWORD, Secured
from tests.support.waiting import wait_until

TOKEN_KEY = "planted-key-of-tokens"
KEY_PASSWORD = "planted-key-password"
WRONG = "planted-wrong-guess"
DYNAMIC = "planted-dynamic-password"
BROKER, SET = 4, 0  # of AlterConfigs


def test_secrets_are_nowhere_to_be_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audit, data = tmp_path / "audit.log", tmp_path / "data"
    more: dict[str, object] = {
        "authorizer__class__name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super__users": "User:ANONYMOUS;User:alice",
        "millstream__audit__log": f"file:{audit}",
        "millstream__metrics__listener": "127.0.0.1:0",
        "delegation__token__secret__key": TOKEN_KEY,
        "ssl__key__password": KEY_PASSWORD,
        "log__dirs": data,
        "no__such__password": WRONG,
    }
    shown: list[str] = []
    secured = Secured(tmp_path / "keys", **more)
    locked = secured.authority.issue("locked", password=KEY_PASSWORD)
    secured.broker.settings["ssl.keystore.location"] = str(locked)
    with secured:
        secured.add_user()

        def ask(mechanism: str, user: str, password: str, work: Any) -> None:
            """What is answered, or the error."""
            properties = secured.properties("SASL_SSL", mechanism, password, user)
            try:
                with Cluster(ClientConfig.of(secured.servers["SASL_SSL"], properties)) as cluster:
                    shown.append(str(work(cluster)))
            except KafkaError as error:
                shown.append(f"{error!r} {error}")

        def settings(cluster: Cluster) -> Any:
            return Admin(cluster).describe_configs([(BROKER, "1"), (BROKER, "")])

        with Cluster(ClientConfig.of(secured.servers["PLAINTEXT"])) as plain:
            admin = SecurityAdmin(plain)
            account = admin.create_account("planted", "")
            key, key_secret = admin.create_key(account.id, "", None)
            shown += [str(admin.accounts()), str(admin.api_keys())]
            # The first is used and stored, the second fits no key and is refused.
            jaas = f'{PACKAGE}.plain.PlainLoginModule required user_carol="{DYNAMIC}";'
            results = []
            for name, value in (("plain.sasl.jaas.config", jaas), ("ssl.key.password", WRONG)):
                change = {(BROKER, "1"): [(f"listener.name.sasl_ssl.{name}", SET, value)]}
                results.append(Admin(plain).alter_configs(change)[BROKER, "1"])
            assert [error is None for error in results] == [True, False]
            shown.append(str(results))
            with Cluster(
                ClientConfig.of(secured.servers["SASL_SSL"], secured.properties("SASL_SSL", "SCRAM-SHA-512"))
            ) as alice:
                token = SecurityAdmin(alice).create_token([], -1, "")
                hmac = base64.b64encode(token.hmac).decode()
                for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
                    for user, password in (
                        ("alice", PASSWORD),
                        ("carol", DYNAMIC),
                        (key.id, key_secret),
                        (token.token_id, hmac),
                        ("alice", WRONG),
                        ("nobody", WRONG),
                    ):
                        ask(mechanism, user, password, settings)
        page = secured.broker.log.split("metrics on http://")[1].split()[0]
        with urllib.request.urlopen(f"http://{page}", timeout=60) as metrics:
            shown.append(metrics.read().decode())
        wait_until(lambda: "nobody" in audit.read_text())
        assert main(["metadata", "dump", "--log-dir", str(data)]) == 0
        shown.append(capsys.readouterr().out)
    shown += [secured.broker.log, audit.read_text()]
    secrets = [PASSWORD, "bob-secret", TOKEN_KEY, KEY_PASSWORD, WRONG, DYNAMIC, key_secret, hmac]
    secrets += [base64.b64encode(secret.encode()).decode() for secret in (PASSWORD, WRONG, key_secret)]
    secrets += [token.hmac.hex(), repr(token.hmac)[2:-1]]
    for secret in secrets:
        for text in shown:
            at = text.find(secret)
            assert at < 0, f"{secret[:12]}... in: {text[max(0, at - 300) : at]}"
