"""`millstream broker` with stand-ins for the classes that Kafka's tests load into a broker: `python
standins.py --set NAME=VALUE ...`.

A test of Kafka names a `principal.builder.class` or an `authorizer.class.name` of its own, a Java class. What
each of them does is said here again, by the name of the class; the broker itself is the one that users start.
Beside that, the harness may ask for delegation tokens. It passes the authorizer on as `standins.authorizer`.
"""

import re
import sys
from collections.abc import Callable

from millstream.broker import main
from millstream.broker.apis.delegation_tokens import DelegationTokensApi
from millstream.broker.authorizer import Authorizer
from millstream.broker.network.connection import ANONYMOUS, Connection
from millstream.broker.network.dispatch import Call

HARNESS = "HARNESS"  # the listener of the harness, whose principal may do all
Builder = Callable[[str, str], str]  # from a listener and who came in there to the principal


def by_listener(names: dict[str, str]) -> Builder:
    return lambda listener, _: names[listener]


def always(principal: str) -> Builder:
    return lambda listener, _: principal


def renamed(names: dict[str, str], others: str) -> Builder:
    return lambda listener, principal: names.get(principal, others.format(principal.removeprefix("User:")))


def _name_and_cn(principal: str) -> tuple[str, str] | None:
    found = re.fullmatch(r"User:O=A (.*?),CN=(.*?)", principal)
    return None if found is None else (found[1], found[2])


def _whole_name(listener: str, principal: str) -> str:
    found = _name_and_cn(principal)
    if found is None:
        return ANONYMOUS
    return "User:server" if found[0] == "server" or found[1] == "super-user" else principal


def _name_in_certificate(listener: str, principal: str) -> str:
    name, cn = _name_and_cn(principal) or ("", "")
    if name == "server" or cn == "super-user":
        return "User:server"
    return f"User:{cn}" if cn == "client" else ANONYMOUS


BUILDERS: dict[str, Builder] = {
    "kafka.api.AbstractAuthorizerIntegrationTest$PrincipalBuilder": by_listener(
        {"BROKER": "User:broker", "CLIENT": "User:client"}
    ),
    "kafka.api.PlaintextEndToEndAuthorizationTest$TestClientPrincipalBuilder": always("User:client"),
    "kafka.api.PlaintextEndToEndAuthorizationTest$TestServerPrincipalBuilder": always("User:server"),
    "kafka.api.SslEndToEndAuthorizationTest$TestPrincipalBuilder": _whole_name,
    "kafka.api.SslAdminIntegrationTest$TestPrincipalBuilder": _name_in_certificate,
    "kafka.api.SaslPlainSslEndToEndAuthorizationTest$TestPrincipalBuilder": renamed(
        {"User:plain-admin": "User:admin", "User:plain-user": "User:user"}, ANONYMOUS
    ),
    "kafka.api.GroupEndToEndAuthorizationTest$GroupPrincipalBuilder": renamed(
        {"User:scram-user": "Group:testGroup"}, "Group:{}"
    ),
    "org.apache.kafka.clients.security.GroupAuthorizerIntegrationTest$GroupPrincipalBuilder": by_listener(
        {"BROKER": "Group:broker", "EXTERNAL": "Group:client"}
    ),
    "kafka.server.AlterCredentialsTest$TestPrincipalBuilderReturningAuthorized": always("User:Authorized"),
    "kafka.server.AlterCredentialsTest$TestPrincipalBuilderReturningUnauthorized": always(
        "User:Unauthorized"
    ),
    "kafka.server.DescribeCredentialsTest$TestPrincipalBuilderReturningAuthorized": always("User:Authorized"),
    "kafka.server.DescribeCredentialsTest$TestPrincipalBuilderReturningUnauthorized": always(
        "User:Unauthorized"
    ),
}


ALTER_USER_SCRAM_CREDENTIALS = 51
Judge = Callable[[str, int], bool]  # from a principal and an API to whether it may
JUDGES: dict[str, Judge] = {
    "kafka.server.AlterCredentialsTest$TestStandardAuthorizer": lambda principal, api: (
        (principal, api) != ("User:Unauthorized", ALTER_USER_SCRAM_CREDENTIALS)
    ),
}


def judge(decides: Judge) -> None:
    Authorizer.allows = lambda self, principal, host, api, *_, **__: decides(principal, api)


def install(settings: dict[str, str]) -> None:
    """Put the builders that the settings name between a connection and its principal."""
    stored = Connection.principal  # the slot

    def principal(connection: Connection) -> str:
        listener, found = connection.context.name, stored.__get__(connection)
        if listener == HARNESS:
            return "User:harness"
        name = settings.get(f"listener.name.{listener.lower()}.principal.builder.class") or settings.get(
            "principal.builder.class"
        )
        return BUILDERS[name](listener, found) if name else found

    Connection.principal = property(principal, stored.__set__)


def show_tokens_to_the_harness() -> None:
    """Else nobody sees delegation tokens on a PLAINTEXT listener."""
    check = DelegationTokensApi._check_session

    def check_others(self: DelegationTokensApi, call: Call) -> None:
        if call.connection.context.name != HARNESS:
            check(self, call)

    DelegationTokensApi._check_session = check_others  # type: ignore[method-assign]


if __name__ == "__main__":
    given = dict(text.split("=", 1) for text in sys.argv[1:] if text != "--set")
    if decides := JUDGES.get(given.pop("standins.authorizer", "")):
        judge(decides)
    install(given)
    show_tokens_to_the_harness()
    sys.exit(main.main([word for name, value in given.items() for word in ("--set", f"{name}={value}")]))
