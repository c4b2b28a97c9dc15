"""franz-go and kafkajs over SASL_SSL, by PLAIN and SCRAM, with ACLs and short sessions: go/secured.go and
node/secured.js."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.support.secured import PASSWORD, Secured

from .test_franz_go import program
from .test_kafkajs import project

__all__ = ["program", "project"]  # fixtures
pytestmark = pytest.mark.interop_slow


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """The plain listener is the administrator's. Sessions last two seconds, so that clients log in again."""
    settings: dict[str, object] = {
        "authorizer__class__name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super__users": "User:ANONYMOUS",
        "listener__name__sasl_ssl__connections__max__reauth__ms": 2000,
    }
    with Secured(tmp_path_factory.mktemp("secured"), **settings) as made:
        made.add_user()
        yield made


@pytest.mark.timeout(600)
def test_franz_go_over_sasl_ssl(program: Path, secured: Secured) -> None:
    addresses = [secured.servers["SASL_SSL"], str(secured.authority.pem), secured.servers["PLAINTEXT"]]
    done = subprocess.run(
        [str(program), "secured", *addresses, PASSWORD], capture_output=True, text=True, timeout=300
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    assert done.stdout.count("ok ") == 11


@pytest.mark.timeout(600)
def test_kafkajs_over_sasl_ssl(project: Path, secured: Secured) -> None:
    topic = "node-secured"
    admin = AdminClient({"bootstrap.servers": secured.servers["PLAINTEXT"]})
    rights = [
        AclBinding(kind, topic, pattern, "User:alice", "*", operation, AclPermissionType.ALLOW)
        for kind, pattern, operation in (
            (ResourceType.TOPIC, ResourcePatternType.LITERAL, AclOperation.READ),
            (ResourceType.TOPIC, ResourcePatternType.LITERAL, AclOperation.WRITE),
            (ResourceType.GROUP, ResourcePatternType.PREFIXED, AclOperation.READ),
        )
    ]
    for made in (*admin.create_topics([NewTopic(topic, 1)]).values(), *admin.create_acls(rights).values()):
        made.result(30)
    shutil.copy(Path(__file__).with_name("node") / "secured.js", project)
    command = ["node", "secured.js", secured.servers["SASL_SSL"], str(secured.authority.pem), PASSWORD, topic]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    assert done.stdout.count("ok ") == 7
