"""`acls` and the quotas of `configs`, in the lines of Kafka's tools."""

import json

import pytest

from millstream.client.errors import describe
from millstream.testing import Broker
from millstream.wire.errors import ErrorCode

from .conftest import Run


@pytest.fixture(scope="module")
def servers():
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with Broker(settings) as broker:
        yield ["--bootstrap-server", broker.bootstrap_servers]


ORDERS = "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)"


def entry(who: str, operation: str, permission: str = "ALLOW", host: str = "*") -> str:
    return f"\t(principal=User:{who}, host={host}, operation={operation}, permissionType={permission})"


def test_acls_are_added_listed_and_removed(run: Run, servers: list[str]) -> None:
    added = run("acls", "--add", "--allow-principal", "User:bob", "--producer", "--topic", "orders", *servers)
    lines = "\n".join(entry("bob", operation) for operation in ("WRITE", "DESCRIBE", "CREATE"))
    assert added.out == f"Adding ACLs for resource `{ORDERS}`: \n {lines} \n\n"
    run(
        *("acls", "--add", "--deny-principal", "User:eve", "--deny-host", "10.0.0.1", "--operation", "Read"),
        *("--topic", "ord", "--resource-pattern-type", "prefixed", *servers),
    )
    listed = run("acls", "--list", "--principal", "User:eve", *servers)
    denied = entry("eve", "READ", "DENY", "10.0.0.1")
    prefix = "ResourcePattern(resourceType=TOPIC, name=ord, patternType=PREFIXED)"
    assert (
        listed.out == f"ACLs for principal `User:eve`\nCurrent ACLs for resource `{prefix}`: \n {denied} \n\n"
    )
    match = run(
        "acls", "--list", "--topic", "orders", "--resource-pattern-type", "match", "-o", "json", *servers
    )
    assert len(json.loads(match.out)) == 4
    no = run("acls", "--remove", "--topic", "orders", *servers, stdin="n\n")
    asked = f"Are you sure you want to delete all ACLs for resource filter `{ORDERS}`? (y/n)\n"
    assert no.out == asked
    assert len(json.loads(run("acls", "--list", "--topic", "orders", "-o", "json", *servers).out)) == 3
    assert run("acls", "--remove", "--topic", "orders", *servers, stdin="y\n").out == asked
    assert run("acls", "--remove", "--topic", "ord", "--resource-pattern-type", "any", "--force", *servers)
    assert run("acls", "--list", *servers).out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topic", "x"], "Command must include exactly one action: --list, --add, --remove."),
        (["--add", "--allow-principal", "User:b"], "You must provide at least one resource"),
        (["--add", "--topic", "x"], "You must specify one of: --allow-principal, --deny-principal"),
        (["--add", "--topic", "x", "--allow-principal", "bob"], "expected a string in format principalType"),
        (
            ["--add", "--group", "g", "--allow-principal", "User:b", "--operation", "Create"],
            "ResourceType GROUP only supports operations",
        ),
        (
            ["--add", "--topic", "x", "--allow-principal", "User:b", "--resource-pattern-type", "match"],
            "A '--resource-pattern-type' value of 'MATCH' is not valid when adding acls.",
        ),
        (["--add", "--consumer", "--topic", "x", "--allow-principal", "User:b"], "With --consumer you must"),
        (["--list", "--producer", "--topic", "x"], 'Option "[producer]" can\'t be used with option "[list]"'),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes(run: Run, servers: list[str], arguments: list[str], message: str) -> None:
    done = run("acls", *arguments, *servers)
    assert done.code in (1, 2)
    assert done.err.startswith(message)
    assert len(done.err.splitlines()) == 1


def test_refused_tokens_say_what_to_do(run: Run, servers: list[str]) -> None:
    done = run("delegation-tokens", "--describe", *servers)
    assert done.code == 1
    assert "only for users who have logged in" in done.err
    assert len(done.err.splitlines()) == 1
    assert "set delegation.token.secret.key" in describe(ErrorCode.delegation_token_auth_disabled)


def test_quotas_are_set_shown_and_removed(run: Run, servers: list[str]) -> None:
    def configs(*words: str) -> str:
        done = run("configs", *words, *servers)
        assert done.code == 0, done
        return done.out

    assert configs("--alter", "--user", "bob", "--add-config", "producer_byte_rate=1024") == (
        "Completed updating config for user bob.\n"
    )
    both = ("--entity-type", "users", "--entity-name", "bob", "--entity-type", "clients", "--entity-default")
    assert configs("--alter", *both, "--add-config", "consumer_byte_rate=7,request_percentage=1.5") == (
        "Completed updating config for user bob.\n"
    )
    assert configs("--alter", "--ip-defaults", "--add-config", "connection_creation_rate=4") == (
        "Completed updating default config for ips in the cluster.\n"
    )
    assert configs("--describe", "--entity-type", "users") == (
        "Quota configs for user-principal 'bob' are producer_byte_rate=1024.0\n"
    )
    assert configs("--describe", *both) == (
        "Quota configs for user-principal 'bob', the default client-id are consumer_byte_rate=7.0, "
        "request_percentage=1.5\n"
    )
    assert configs("--describe", "--entity-type", "ips") == (
        "Quota configs for the default ip are connection_creation_rate=4.0\n"
    )
    configs("--alter", "--user", "bob", "--delete-config", "producer_byte_rate")
    assert configs("--describe", "--user", "bob") == ""
    for words, message in (
        (("--user", "bob", "--delete-config", "producer_byte_rate"), "Invalid config(s): producer_byte_rate"),
        (("--user", "bob", "--add-config", "no_such=1"), "Only quota and SCRAM credential configs can be"),
        (("--user", "bob", "--add-config", "producer_byte_rate=x"), "Cannot parse quota configuration value"),
        (("--ip", "300.1.1.1", "--add-config", "connection_creation_rate=1"), "Error while executing config"),
        (("--entity-type", "users", "--add-config", "producer_byte_rate=1"), "An entity name must be"),
        (("--ip", "10.0.0.1", "--user", "b", "--add-config", "a=1"), "Only entity type(s) users and clients"),
    ):
        done = run("configs", "--alter", *words, *servers)
        assert (done.code in (1, 2), done.err.startswith(message)) == (True, True), done
