"""The suites of the services against a secured cluster.

    MILLSTREAM_TEST_SECURED=1 pytest tests/registry tests/rest tests/console tests/connect tests/sql/server

starts brokers that have an authorizer, and every service of a test reaches them over SASL_SSL as a user of
its own, with ACLs (ACLS). The tests' own clients stay on a PLAINTEXT listener, as a super user: what they
check is the services. With MILLSTREAM_TEST_BOOTSTRAP and MILLSTREAM_TEST_LOGIN, a file of client properties
with bootstrap.servers, the same is done with a cluster that somebody else runs and has given these rights to.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from millstream.cli.cluster_access import read_properties
from millstream.client import ClientConfig, Cluster
from millstream.client.security_admin import SecurityAdmin
from millstream.testing import Broker
from millstream.wire.acls import CLUSTER_NAME, AclBinding, Operation, PatternType, Permission, ResourceType
from tests.support.secured import Secured

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

_secured: dict[str, Secured] = {}  # by the address of the PLAINTEXT listener


def wanted() -> bool:
    return os.environ.get("MILLSTREAM_TEST_SECURED", "") not in ("", "0")


@contextlib.contextmanager
def session_broker(settings: Mapping[str, object], folder: Path) -> Iterator[Broker]:
    """A broker with these settings; secured, if that is wanted."""
    if not wanted():
        with Broker(settings) as running:
            yield running
        return
    more: dict[str, object] = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with Secured(folder, **more, **settings) as secured:
        address = secured.broker.bootstrap_servers
        with Cluster(ClientConfig.of(address)) as cluster:
            admin = SecurityAdmin(cluster)
            for user, operations in ACLS.items():
                secured.add_user(user, _password(user))
                admin.create_acls(_rights(user, operations))
        _secured[address] = secured
        try:
            yield secured.broker
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
