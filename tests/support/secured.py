"""A broker that asks who comes: a listener per protocol, users by every mechanism, and clients' settings for
it."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils

from millstream.testing import Broker
from tests.client.certificates import Authority

PASSWORD = "alice-secret-7c1d"  # noqa: S105
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PACKAGE = "org.apache.kafka.common.security"


def encoded(value: bytes | dict[str, Any]) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class TokenServer:
    """Issues signed tokens; `url` names the file with its public key."""

    def __init__(self, folder: Path, kid: str = "key-1") -> None:
        self.kid = kid
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.path = folder / "jwks.json"
        self.url = f"file://{self.path}"
        self.publish()

    def publish(self) -> None:
        numbers = self.key.public_key().public_numbers()
        jwk = {"kty": "EC", "crv": "P-256", "kid": self.kid, "use": "sig"}
        jwk |= {name: encoded(getattr(numbers, name).to_bytes(32, "big")) for name in ("x", "y")}
        self.path.write_text(json.dumps({"keys": [jwk]}))

    def token(
        self, user: str = "alice", seconds: float = 300, header: dict[str, Any] | None = None, **claims: Any
    ) -> str:
        now = int(time.time())
        head = {"alg": "ES256", "kid": self.kid, **(header or {})}
        body = {"sub": user, "iat": now, "exp": now + seconds, "iss": "tests", "aud": "kafka", **claims}
        signed = f"{encoded(head)}.{encoded(body)}"
        r, s = utils.decode_dss_signature(self.key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{encoded(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


class WithUsers:
    """What a broker with users has, be it ours or Apache Kafka's."""

    authority: Authority
    servers: dict[str, str]  # its addresses, by protocol

    def add_user(self, name: str = "alice", password: str = PASSWORD) -> None:
        from confluent_kafka.admin import (
            AdminClient,
            ScramCredentialInfo,
            ScramMechanism,
            UserScramCredentialUpsertion,
        )

        admin = AdminClient({"bootstrap.servers": self.servers["PLAINTEXT"]})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            change = UserScramCredentialUpsertion(
                name, ScramCredentialInfo(mechanism, 4096), password.encode()
            )
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(30)

    def properties(
        self, protocol: str, mechanism: str = "", password: str = PASSWORD, user: str = "alice"
    ) -> dict[str, str]:
        """For our own client."""
        found = {"security.protocol": protocol, "request.timeout.ms": "10000"}
        if protocol.endswith("SSL"):
            found["ssl.ca.location"] = str(self.authority.pem)
        if mechanism:
            found |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
        return found


class Secured(WithUsers):
    def __init__(self, folder: Path, **more: object) -> None:
        folder.mkdir(exist_ok=True)
        self.authority = Authority(folder)
        self.tokens = TokenServer(folder)
        self.broker = Broker(
            {
                "listeners": ",".join(f"{protocol}://127.0.0.1:0" for protocol in PROTOCOLS),
                "ssl.keystore.location": self.authority.issue("broker", days=90),
                "ssl.keystore.type": "PEM",
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                **{
                    f"listener.name.{listener}.plain.sasl.jaas.config": f"{PACKAGE}.plain.PlainLoginModule "
                    f'required user_alice="{PASSWORD}" user_bob="bob-secret";'
                    for listener in ("sasl_plaintext", "sasl_ssl")
                },
                "sasl.oauthbearer.jwks.endpoint.url": self.tokens.url,
                "sasl.oauthbearer.expected.audience": "kafka",
                "sasl.oauthbearer.expected.issuer": "tests",
                "connection.failed.authentication.delay.ms": 0,
                "millstream.login.failures.per.address": 0,
                "millstream.log.level": "debug",
                **{name.replace("__", "."): value for name, value in more.items()},
            }
        )

    def __enter__(self) -> Secured:
        self.broker.__enter__()
        self.servers = {}
        ready = next(line for line in self.broker.log.splitlines() if line.startswith("ready "))
        listeners = ready.split("listeners=")[1].split()[0]
        for listener in listeners.split(","):
            name, _, address = listener.partition("://")
            self.servers[name] = address
        return self

    def __exit__(self, *error: Any) -> None:
        self.broker.__exit__(*error)

    def rdkafka(
        self, protocol: str, mechanism: str = "", password: str = PASSWORD, user: str = "alice"
    ) -> dict[str, Any]:
        conf: dict[str, Any] = {"bootstrap.servers": self.servers[protocol], "security.protocol": protocol}
        if protocol.endswith("SSL"):
            conf["ssl.ca.location"] = str(self.authority.pem)
        if mechanism == "OAUTHBEARER":
            token = self.tokens.token(user)
            conf |= {"sasl.mechanism": mechanism, "oauth_cb": lambda _: (token, time.time() + 300)}
        elif mechanism:
            conf |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
        return conf
