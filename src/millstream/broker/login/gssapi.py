"""GSSAPI (RFC 4752), the server's half: the client has a Kerberos ticket for this service.

    client, server   tokens of Kerberos, until both know each other
    client           an empty message, if the last token came from the server
    server           wrapped: the security layers on offer (none) and the largest message (0)
    client           wrapped: the layer chosen, the same size, and an authorization id

The authorization id is not looked at, as in Kafka: who has logged in is whom the ticket names (kafka-python
sends the name of the service there).

The service's key is in a keytab, which the listener's JAAS text names together with the service's principal
(`Krb5LoginModule required useKeyTab=true keyTab="..." principal="kafka/host@REALM";`). Kerberos itself is
the system's library, by the package `gssapi` (extra `kerberos`). No layer is offered, as Kafka offers none:
TLS encrypts. A client's principal becomes a user name by `sasl.kerberos.principal.to.local.rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from millstream.broker.login.kerberos_names import NoRuleApplies
from millstream.broker.login.mechanism import Identity, LoginRefused, Step, Work

NO_LAYER = b"\x01\0\0\0"
REFUSED = "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"


class Acceptor(NamedTuple):
    """The service, as Kerberos knows it."""

    new_context: Callable[[], Any]
    errors: tuple[type[Exception], ...]  # what Kerberos raises
    realm: str


def acceptor(keytab: str, principal: str) -> Acceptor:
    """ImportError without the package; ValueError with the reason if the keytab has no key of the service."""
    import gssapi
    from gssapi.raw.misc import GSSError

    try:
        credentials = gssapi.Credentials(
            name=gssapi.Name(principal, gssapi.NameType.kerberos_principal) if principal else None,
            usage="accept",
            store={"keytab": f"FILE:{keytab}"},
        )
        name = str(credentials.name) if principal else ""
    except GSSError as error:
        raise ValueError(str(error).replace("\n", " ")) from None
    return Acceptor(
        lambda: gssapi.SecurityContext(creds=credentials, usage="accept"),
        (GSSError,),
        name.rpartition("@")[2],
    )


class Gssapi:
    def __init__(self, service: Acceptor, user: Callable[[str], str]) -> None:
        """`user` gives a principal's user name."""
        self._service = service
        self._user = user
        self._context: Any = None
        self._offered = False

    def respond(self, message: bytes) -> Step | Work:
        # Kerberos reads files (keytab, replay cache) and does cryptography: not in the loop.
        return Work(lambda: self._respond(message))

    def _respond(self, message: bytes) -> Step:
        try:
            if self._context is None:
                self._context = self._service.new_context()
            if not self._context.complete:
                token = self._context.step(message)
                if token or not self._context.complete:
                    return Step(bytes(token or b""))
                message = b""
            if not self._offered:
                if message:
                    raise LoginRefused(REFUSED, "a message where none was due")
                self._offered = True
                return Step(self._context.wrap(NO_LAYER, False).message)
            return self._finish(self._context.unwrap(message).message)
        except self._service.errors as error:
            raise LoginRefused(REFUSED, f"Kerberos: {error}".replace("\n", " ")) from None

    def _finish(self, choice: bytes) -> Step:
        try:
            principal = str(self._context.initiator_name)
        except UnicodeDecodeError:
            raise LoginRefused(REFUSED, "the client's principal is not text") from None
        if len(choice) < len(NO_LAYER) or choice[0] != NO_LAYER[0]:
            raise LoginRefused(REFUSED, f"{principal!r} asks for a security layer, and none is offered")
        try:
            return Step(b"", Identity(f"User:{self._user(principal)}"))
        except (NoRuleApplies, ValueError) as error:
            raise LoginRefused(REFUSED, str(error)) from None
