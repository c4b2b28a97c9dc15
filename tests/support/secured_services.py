"""The suites of the services against a secured cluster.

    MILLSTREAM_TEST_SECURED=1 pytest tests/registry tests/rest tests/console tests/connect tests/sql/server

starts brokers that have an authorizer, and every service of a test reaches them over SASL_SSL as a user of
its own, with ACLs (ACLS). The tests' own clients stay on a PLAINTEXT listener, as a super user: what they
check is the services. MILLSTREAM_TEST_SECURED=kafka starts Apache Kafka in the place of our broker. With
MILLSTREAM_TEST_BOOTSTRAP and MILLSTREAM_TEST_LOGIN, a file of client properties with bootstrap.servers, the
same is done with a cluster that somebody else runs and has given these rights to.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from millstream.cli.cluster_access import read_properties
from millstream.client import ClientConfig, Cluster
from millstream.client.security_admin import SecurityAdmin
from millstream.testing import Broker
from millstream.wire.acls import CLUSTER_NAME, AclBinding, Operation, PatternType, Permission, ResourceType
from tests.client.certificates import Authority
from tests.support.peers import apache_kafka
from tests.support.secured import Secured, WithUsers

T = TypeVar("T")

# Before the names of a client's properties, and of the brokers' address, in the settings of a service.
PREFIXES = {
    "registry": "kafkastore.",
    "rest": "client.",
    "console": "client.",
    "connect": "",
    "sql-server": "client.",
}
SERVERS = {"registry": "kafkastore.bootstrap.servers"}
_ALL = (Operation.ALL,)
_LOOK = (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)
# What each may do with the cluster. Topics, groups and transactional ids are the tests' to choose.
ACLS: Mapping[str, tuple[Operation, ...]] = {
    "registry": (Operation.DESCRIBE,),
    "rest": (*_LOOK, Operation.CREATE, Operation.ALTER, Operation.ALTER_CONFIGS),
    "console": (*_LOOK, Operation.CREATE, Operation.ALTER_CONFIGS),
    "connect": (Operation.DESCRIBE, Operation.CREATE, Operation.IDEMPOTENT_WRITE),
    "sql-server": (Operation.DESCRIBE, Operation.CREATE, Operation.IDEMPOTENT_WRITE),
}
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


class SecuredKafka(WithUsers):
    """Apache Kafka, as `Secured` is our broker."""

    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        peer = apache_kafka()
        self.authority = Authority(folder)
        self.kafka = peer.ApacheKafka(folder / "data")
        plain = self.kafka.settings
        listener = f"SASL_SSL://127.0.0.1:{peer.free_port()}"
        jaas = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        self.kafka.settings = {
            **plain,
            "listeners": f"{plain['listeners']},{listener}",
            "advertised.listeners": f"{plain['advertised.listeners']},{listener}",
            "listener.security.protocol.map": f"{plain['listener.security.protocol.map']},SASL_SSL:SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.authority.issue("broker")),
            "log.retention.ms": "-1",  # some tests write records of 1970, which it would delete after 30 s
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": jaas,
            **AUTHORIZER,
            **{name: str(value) for name, value in settings.items()},
        }
        self.servers = {"SASL_SSL": listener.partition("://")[2]}

    def __enter__(self) -> SecuredKafka:
        self.kafka.__enter__()
        self.servers["PLAINTEXT"] = self.bootstrap_servers = self.kafka.bootstrap
        return self

    def __exit__(self, *error: Any) -> None:
        self.kafka.__exit__(*error)


_secured: dict[str, WithUsers] = {}  # by the address of the PLAINTEXT listener


def wanted() -> bool:
    return os.environ.get("MILLSTREAM_TEST_SECURED", "") not in ("", "0")


@contextlib.contextmanager
def session_broker(settings: Mapping[str, object], folder: Path) -> Iterator[Any]:
    """A broker with these settings; secured, if that is wanted. It has `bootstrap_servers`; ours can also be
    stopped and so on."""
    if not wanted():
        with Broker(settings) as running:
            yield running
        return
    with contextlib.ExitStack() as stack:
        broker: Any
        secured: WithUsers
        if os.environ["MILLSTREAM_TEST_SECURED"] == "kafka":
            broker = secured = stack.enter_context(SecuredKafka(folder, settings))
        else:
            ours = stack.enter_context(Secured(folder, **AUTHORIZER, **settings))
            broker, secured = ours.broker, ours
        address = broker.bootstrap_servers
        with Cluster(ClientConfig.of(address)) as cluster:
            admin = SecurityAdmin(cluster)
            for user, operations in ACLS.items():
                secured.add_user(user, _password(user))
                admin.create_acls(_rights(user, operations))
        _secured[address] = secured
        try:
            yield broker
        finally:
            del _secured[address]


def _password(user: str) -> str:
    return f"{user}-secret-5d0e"


def _rights(user: str, operations: tuple[Operation, ...]) -> list[AclBinding]:
    named = [(ResourceType.CLUSTER, CLUSTER_NAME, operations)]
    named += [
        (kind, "*", _ALL) for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
    ]
    return [
        AclBinding(kind, name, PatternType.LITERAL, f"User:{user}", "*", operation, Permission.ALLOW)
        for kind, name, some in named
        for operation in some
    ]


def address_of(bootstrap: str) -> str:
    """The address at which services reach the brokers that a test's own clients know by `bootstrap`."""
    secured = _secured.get(bootstrap)
    return bootstrap if secured is None else secured.servers["SASL_SSL"]


def with_login(command: str, settings: Mapping[str, T]) -> dict[str, T | str]:
    """The settings of a service, with its login where its brokers are secured ones of this module."""
    servers = SERVERS.get(command, "bootstrap.servers")
    found, login = _login(command, str(settings.get(servers, "")))
    if not found:
        return dict(settings)
    prefix = PREFIXES[command]
    return {**{prefix + name: value for name, value in login.items()}, **settings, servers: found}


def _login(user: str, address: str) -> tuple[str, dict[str, str]]:
    if user not in PREFIXES:
        return "", {}
    secured = _secured.get(address)
    if secured is not None:
        login = secured.properties("SASL_SSL", "SCRAM-SHA-512", _password(user), user)
        return secured.servers["SASL_SSL"], login
    given = os.environ.get("MILLSTREAM_TEST_LOGIN")
    if given and address and address == os.environ.get("MILLSTREAM_TEST_BOOTSTRAP"):
        login = read_properties(given)
        return login.pop("bootstrap.servers"), login
    return "", {}
