"""A secured broker with ACLs, and services whose callers are its users. One of each for all tests of this
folder; tests use users, topics and groups of their own."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator

import httpx
import pytest

from millstream.client import Admin, ClientConfig, Cluster, NewTopic
from millstream.client.security_admin import SecurityAdmin
from millstream.wire.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from tests.rest.rest_client import RunningRest
from tests.support.running import RunningRegistry
from tests.support.secured import Secured

_addresses = itertools.count(2)


class Platform:
    """The broker, and what an administrator does. Whoever comes by PLAINTEXT is a super user."""

    def __init__(self, secured: Secured) -> None:
        self.secured = secured
        self.cluster = Cluster(ClientConfig.of(secured.servers["PLAINTEXT"]))
        self.admin = SecurityAdmin(self.cluster)
        self.bootstrap = secured.servers["SASL_SSL"]
        self.certificate = secured.authority.issue("services")

    def properties(self, user: str, prefix: str = "") -> dict[str, str]:
        """For a service that is this user, and shows a certificate."""
        self.secured.add_user(user, f"{user}-secret")
        found = self.secured.properties("SASL_SSL", "SCRAM-SHA-512", f"{user}-secret", user)
        found["ssl.keystore.location"] = str(self.certificate)
        return {prefix + name: value for name, value in found.items()}

    def user(self) -> tuple[str, str]:
        """Name and password of a new user of SCRAM."""
        name = f"u-{uuid.uuid4().hex[:8]}"
        password = f"secret-{uuid.uuid4().hex}"
        self.secured.add_user(name, password)
        return name, password

    def key(self) -> tuple[str, str, str]:
        """The principal of a new service account, and the id and secret of its API key."""
        account = self.admin.create_account(f"a-{uuid.uuid4().hex[:8]}", "")
        key, secret = self.admin.create_key(account.id, "", None)
        return account.id, key.id, secret

    def topic(self) -> str:
        name = f"t-{uuid.uuid4().hex[:8]}"
        Admin(self.cluster).create_topics([NewTopic(name, 1, 1)])
        return name

    def allow(
        self, user: str, kind: ResourceType, name: str, *operations: Operation, prefixed: bool = False
    ) -> None:
        pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
        self.admin.create_acls(
            AclBinding(kind, name, pattern, f"User:{user}", "*", operation, Permission.ALLOW)
            for operation in operations
        )


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    folder = tmp_path_factory.mktemp("secured")
    settings: dict[str, object] = {
        "authorizer__class__name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super__users": "User:ANONYMOUS",
        "listener__name__sasl_ssl__ssl__client__auth": "requested",
        "ssl__truststore__location": folder / "authority.pem",
        "ssl__truststore__type": "PEM",
        # So few that the services' own logins would be refused if those of their callers counted.
        "millstream__login__failures__per__address": 3,
        "delegation__token__secret__key": "key-of-tokens",
        "offsets__topic__num__partitions": 1,
        "group__initial__rebalance__delay__ms": 0,
    }
    with Secured(folder, **settings) as secured:
        yield Platform(secured)


@pytest.fixture(scope="session")
def registry(platform: Platform) -> Iterator[RunningRegistry]:
    user = "registry"
    platform.allow(user, ResourceType.TOPIC, "_", Operation.ALL, prefixed=True)
    platform.allow(user, ResourceType.GROUP, "schema-registry", Operation.ALL)
    platform.allow(user, ResourceType.TRANSACTIONAL_ID, "schema-registry", Operation.ALL, prefixed=True)
    settings = {"authentication.method": "BASIC,BEARER", **platform.properties(user, "kafkastore.")}
    with RunningRegistry(platform.bootstrap, settings) as running:
        yield running


@pytest.fixture(scope="session")
def rest(platform: Platform) -> Iterator[RunningRest]:
    settings = {"authentication.method": "BASIC,BEARER", **platform.properties("rest", "client.")}
    with RunningRest(platform.bootstrap, settings=settings) as running:
        yield running


@pytest.fixture
def address() -> str:
    """One from which nobody has come yet."""
    number = next(_addresses)
    return f"127.0.{number // 250 + 1}.{number % 250 + 2}"


def client(url: str, auth: tuple[str, str] | None, address: str = "") -> httpx.Client:
    transport = httpx.HTTPTransport(local_address=address) if address else None
    return httpx.Client(base_url=url, auth=auth, timeout=120, transport=transport)
