"""Kafka's own tools, and so the Java client, against our secured broker: protocols by mechanisms, SCRAM
users."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.peers import apache_kafka
from tests.support.secured import PACKAGE, PASSWORD, Secured

pytestmark = pytest.mark.interop_slow

MODULES = {"PLAIN": "plain.Plain", "SCRAM-SHA-256": "scram.Scram", "SCRAM-SHA-512": "scram.Scram"}
MATRIX = [
    ("SSL", ""),
    ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    ("SASL_SSL", "PLAIN"),
    ("SASL_SSL", "SCRAM-SHA-512"),
]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with Secured(tmp_path_factory.mktemp("java")) as made:
        made.add_user()
        yield made
        assert "Traceback" not in made.broker.log


def config(secured: Secured, folder: Path, protocol: str, mechanism: str, password: str = PASSWORD) -> str:
    lines = [f"security.protocol={protocol}"]
    if protocol.endswith("SSL"):
        lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={secured.authority.pem}"]
    if mechanism:
        module = f"{PACKAGE}.{MODULES[mechanism]}LoginModule"
        lines += [
            f"sasl.mechanism={mechanism}",
            f'sasl.jaas.config={module} required username="alice" password="{password}";',
        ]
    path = folder / "client.properties"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.parametrize(("protocol", "mechanism"), MATRIX)
def test_topics(secured: Secured, tmp_path: Path, protocol: str, mechanism: str) -> None:
    peer = apache_kafka()
    words = ("--bootstrap-server", secured.servers[protocol], "--command-config")
    words = (*words, config(secured, tmp_path, protocol, mechanism))
    topic = f"java-{protocol}-{mechanism}".lower().replace("_", "-")
    made = peer.tool("org.apache.kafka.tools.TopicCommand", "--create", "--topic", topic, *words)
    assert made.stdout.strip() == f"Created topic {topic}.", made.stderr
    listed = peer.tool("org.apache.kafka.tools.TopicCommand", "--list", *words)
    assert topic in listed.stdout.split()


def test_a_wrong_password(secured: Secured, tmp_path: Path) -> None:
    path = config(secured, tmp_path, "SASL_SSL", "SCRAM-SHA-512", "guess")
    done = apache_kafka().tool(
        "org.apache.kafka.tools.TopicCommand",
        "--list",
        "--bootstrap-server",
        secured.servers["SASL_SSL"],
        "--command-config",
        path,
    )
    assert done.returncode != 0
    assert "SaslAuthenticationException" in done.stdout + done.stderr


def test_scram_users(secured: Secured) -> None:
    peer = apache_kafka()
    words = (
        "--bootstrap-server",
        secured.servers["PLAINTEXT"],
        "--entity-type",
        "users",
        "--entity-name",
        "frank",
    )
    added = peer.tool(
        "kafka.admin.ConfigCommand",
        "--alter",
        "--add-config",
        "SCRAM-SHA-256=[iterations=8192,password=franks]",
        *words,
    )
    assert "Completed updating config for user frank." in added.stdout, added.stdout + added.stderr
    shown = peer.tool("kafka.admin.ConfigCommand", "--describe", *words)
    assert (
        "SCRAM credential configs for user-principal 'frank' are SCRAM-SHA-256=iterations=8192"
        in shown.stdout
    )
    gone = peer.tool("kafka.admin.ConfigCommand", "--alter", "--delete-config", "SCRAM-SHA-256", *words)
    assert "Completed updating config for user frank." in gone.stdout, gone.stdout + gone.stderr
