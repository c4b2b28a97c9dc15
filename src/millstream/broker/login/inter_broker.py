"""How this broker proves to the others who it is, and checks who they are.

The listener between brokers (`inter.broker.listener.name`, or `security.inter.broker.protocol`) says whether
there is TLS and a login. Whom to trust, and the certificate to show, are that listener's own stores. The
login is by `sasl.mechanism.inter.broker.protocol`, with the username and password of that mechanism's JAAS
text. With ACLs, that user must be among `super.users`, or have ClusterAction on the cluster.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
from typing import TYPE_CHECKING

from millstream.broker.login.jaas import parse_jaas
from millstream.broker.tls.stores import TlsSettings, load_key_store, load_trust_store
from millstream.client.errors import Unreachable
from millstream.client.sasl import Scram
from millstream.client.security import MECHANISMS, Sasl
from millstream.settings.values import InvalidSetting
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.replication.broker_connection import BrokerConnection
    from millstream.cluster.metadata_records import Endpoint
    from millstream.settings.resolve import BrokerSettings


class InterBrokerSecurity:
    def __init__(self, settings: BrokerSettings, listener: str, protocol: str) -> None:
        """A broker that is alone needs none of this, so what is wrong is said when it connects to another."""
        self._settings = settings
        self._listener = listener
        self._protocol = protocol
        self._sasl: Sasl | None = None
        self._context: ssl.SSLContext | None = None
        self._wrong = ""
        try:
            self._sasl = self._read_sasl() if protocol.startswith("SASL") else None
            self._context = self._make_context() if protocol.endswith("SSL") else None
        except InvalidSetting as error:
            self._wrong = error.message

    def ssl_context(self, endpoint: Endpoint) -> ssl.SSLContext | None:
        if self._wrong:
            raise Unreachable(f"this broker cannot connect to others: {self._wrong}", again=False)
        if endpoint.security_protocol != self._protocol:
            raise Unreachable(
                f"{endpoint.host}:{endpoint.port} wants {endpoint.security_protocol} between brokers, this "
                f"broker "
                f"speaks {self._protocol}",
                again=False,
            )
        return self._context

    async def log_in(self, connection: BrokerConnection) -> None:
        sasl = self._sasl
        if sasl is None:
            return
        hello = await connection.request("sasl_handshake", mechanism=sasl.mechanism)
        if hello.error_code is not ErrorCode.none:
            raise KafkaError(
                hello.error_code,
                f"the broker at {connection.address} offers {', '.join(hello.mechanisms) or 'nothing'}, not "
                f"{sasl.mechanism} (sasl.mechanism.inter.broker.protocol)",
            )

        async def exchange(message: bytes) -> bytes:
            answer = await connection.request("sasl_authenticate", auth_bytes=message)
            if answer.error_code is not ErrorCode.none:
                raise KafkaError(
                    answer.error_code,
                    f"the broker at {connection.address} refuses the login of '{sasl.username}': "
                    f"{answer.error_message}",
                )
            return bytes(answer.auth_bytes)

        if sasl.mechanism == "PLAIN":
            await exchange(b"\0" + sasl.username.encode() + b"\0" + sasl.password.encode())
            return
        scram = Scram(sasl, base64.b64encode(os.urandom(24)).decode())
        try:
            challenge = await exchange(scram.first)
            scram.finish(await exchange(await asyncio.to_thread(scram.answer, challenge)))
        except ValueError as error:
            raise KafkaError(
                ErrorCode.sasl_authentication_failed, f"login at {connection.address} failed: {error}"
            ) from None

    # ------------------------------------------------------------------ settings

    def _read_sasl(self) -> Sasl:
        settings = self._settings
        name = settings.of_listener(self._listener, "sasl.mechanism.inter.broker.protocol")
        mechanism = settings.string(name).upper()
        if mechanism not in MECHANISMS:
            raise InvalidSetting(name, mechanism, f"Brokers can use {', '.join(MECHANISMS)}")
        jaas = settings.of_listener(self._listener, "sasl.jaas.config", mechanism)
        try:
            options = parse_jaas(settings.text(jaas) or "")[1]
        except ValueError as error:
            raise InvalidSetting(jaas, "[hidden]", str(error), f"{jaas}: {error}") from None
        if not options.get("username"):
            reason = "Brokers log in to each other with the username and password of this text; it has none"
            raise InvalidSetting(jaas, "[hidden]", reason, f"{jaas}: {reason}")
        return Sasl(mechanism, options["username"], options.get("password", ""))

    def _make_context(self) -> ssl.SSLContext:
        tls = TlsSettings(self._settings, self._listener)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        name = self._settings.of_listener(self._listener, "ssl.endpoint.identification.algorithm")
        context.check_hostname = bool(self._settings.string(name).strip())
        if not load_trust_store(context, tls):
            context.load_default_certs()
        load_key_store(context, tls)
        return context
