"""The logins of one listener: which mechanisms it offers, with which users and rules, by its settings."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from millstream.broker.login.credentials import HASHES, CredentialStore
from millstream.broker.login.jaas import parse_jaas, plain_users
from millstream.broker.login.login import Login
from millstream.broker.login.mechanism import Mechanism
from millstream.broker.login.plain import Plain
from millstream.broker.login.scram import Scram
from millstream.settings.values import InvalidSetting

if TYPE_CHECKING:
    from millstream.broker.audit.log import Audit
    from millstream.broker.login.jwks import Jwks
    from millstream.broker.network.buffer_budget import BufferBudget
    from millstream.broker.network.connection import Connection
    from millstream.broker.network.listener import ListenerContext
    from millstream.broker.network.login_failures import LoginFailures
    from millstream.settings.resolve import BrokerSettings

    KeysByUrl = dict[tuple[str, float], Jwks]  # and by how often they are read again

logger = logging.getLogger("millstream.login")

SERVED = ("PLAIN", *HASHES, "OAUTHBEARER", "GSSAPI")
HANDLER = "sasl.server.callback.handler.class"


class ListenerLogin:
    def __init__(
        self,
        context: ListenerContext,
        settings: BrokerSettings,
        store: CredentialStore,
        failures: LoginFailures,
        threads: ThreadPoolExecutor,
        failure_delay: Callable[[], float],
        budget: BufferBudget,
    ) -> None:
        """InvalidSetting for settings that cannot be used."""
        self.context = context
        self.context_before = copy.copy(context)  # with a smaller limit on what is not known yet
        self.context_before.max_frame = settings.integer("sasl.server.max.receive.size")
        self.context_before.max_frame_setting = "sasl.server.max.receive.size"
        self.context_before.budget = budget  # of all who are not known yet: they take nothing from the others
        self.store = store
        self.failures = failures
        self.threads = threads
        self.failure_delay = failure_delay
        self.successes = 0
        self.again = 0
        self.expired = 0
        self.audit: Audit | None = None
        self._settings = settings
        # Outlive a change of other settings: the token server may be away just then.
        self._keys: KeysByUrl = {}
        self._makers = self._read(settings, self._keys)
        if context.protocol == "SASL_PLAINTEXT" and "PLAIN" in self._makers:
            logger.warning(
                "listener %s takes passwords in clear text (PLAIN without TLS): use SASL_SSL, or SCRAM",
                context.name,
            )

    @property
    def offered(self) -> list[str]:
        return list(self._makers)

    def begin(self, connection: Connection) -> None:
        Login(connection, self)

    def start(self, mechanism: str) -> Mechanism:
        return self._makers[mechanism]()

    def max_reauth_ms(self, mechanism: str) -> int:
        settings = self._settings
        return settings.integer(
            settings.of_listener(self.context.name, "connections.max.reauth.ms", mechanism)
        )

    def succeeded(self, connection: Connection, mechanism: str, again: bool) -> None:
        self.successes += 1
        self.again += again
        logger.debug("%s on %s is %s", connection.peer, self.context.name, connection.principal)
        if self.audit is not None:
            self.audit.login(connection, mechanism)

    def failed(self, connection: Connection, mechanism: str, reason: str) -> None:
        """A service that logs in for its callers has one address for all of them, and limits their guesses
        itself. Its certificate says that it is one."""
        host, _, port = connection.peer.rpartition(":")
        self.failures.failed(host, port, self.context.name, reason, guess=not connection.certified)
        if self.audit is not None:
            self.audit.login(connection, mechanism, refused=reason)

    # ------------------------------------------------------------------ settings

    def check(self, settings: BrokerSettings) -> None:
        self._read(settings, {})

    def follow(self, settings: BrokerSettings) -> None:
        keys: KeysByUrl = {}
        try:
            self._makers = self._read(settings, keys)
        except InvalidSetting as error:
            logger.error("listener %s goes on with its old logins: %s", self.context.name, error.message)
            return
        self._settings = settings
        self._keys = keys

    def _read(self, settings: BrokerSettings, keys: KeysByUrl) -> dict[str, Callable[[], Mechanism]]:
        """`keys` takes the token servers' keys in use: the known ones where the settings name them again."""
        name = settings.of_listener(self.context.name, "sasl.enabled.mechanisms")
        wanted = [mechanism.upper() for mechanism in settings.items(name)]
        unknown = [mechanism for mechanism in wanted if mechanism not in SERVED]
        if unknown or not wanted:
            refused = ", ".join(unknown) or "nothing"
            reason = f"Listener {self.context.name} can offer {', '.join(SERVED)}; not {refused}"
            raise InvalidSetting(name, ",".join(wanted), reason)
        makers: dict[str, Callable[[], Mechanism]] = {}
        for mechanism in wanted:
            if mechanism == "PLAIN":
                makers[mechanism] = self._plain(settings)
            elif mechanism == "OAUTHBEARER":
                makers[mechanism] = self._oauth(settings, keys)
            elif mechanism == "GSSAPI":
                makers[mechanism] = self._gssapi(settings)
            else:
                makers[mechanism] = self._scram(mechanism)
        return makers

    def _scram(self, mechanism: str) -> Callable[[], Mechanism]:
        return lambda: Scram(mechanism, self.store)

    def _plain(self, settings: BrokerSettings) -> Callable[[], Mechanism]:
        name = settings.of_listener(self.context.name, "sasl.jaas.config", "PLAIN")
        text = settings.text(name)
        try:
            users = plain_users(text) if text else {}
        except ValueError as error:
            raise InvalidSetting(name, "[hidden]", str(error), f"{name}: {error}") from None
        return lambda: Plain(users, self.store)

    def _gssapi(self, settings: BrokerSettings) -> Callable[[], Mechanism]:
        from millstream.broker.login.gssapi import Gssapi, acceptor
        from millstream.broker.login.kerberos_names import SETTING, KerberosNames

        name = settings.of_listener(self.context.name, "sasl.jaas.config", "GSSAPI")

        def wrong(reason: str) -> InvalidSetting:
            return InvalidSetting(name, "[hidden]", reason, f"{name}: {reason}")

        text = settings.text(name)
        try:
            options = parse_jaas(text)[1] if text else {}
        except ValueError as error:
            raise wrong(str(error)) from None
        keytab, principal = options.get("keyTab", ""), options.get("principal", "")
        if not keytab or not principal:
            raise wrong('GSSAPI needs the broker\'s key: keyTab="/path" principal="kafka/HOST@REALM"')
        try:
            service = acceptor(keytab, principal)
        except ImportError:
            raise wrong(
                "GSSAPI needs the extra kerberos: pip install 'millstream[kerberos]' (which is built with "
                "libkrb5-dev)"
            ) from None
        except ValueError as error:
            raise wrong(f"There is no key of {principal} in {keytab}: {error}") from None
        rules = settings.items(settings.of_listener(self.context.name, SETTING))
        names = KerberosNames(rules, service.realm)
        return lambda: Gssapi(service, names.user)

    def _oauth(self, settings: BrokerSettings, keys: KeysByUrl) -> Callable[[], Mechanism]:
        from millstream.broker.login.jwks import Jwks
        from millstream.broker.login.oauth import Expected, OAuthBearer

        def named(setting: str) -> str:
            return settings.of_listener(self.context.name, setting, "OAUTHBEARER")

        handler = settings.string(named(HANDLER))
        url_name = named("sasl.oauthbearer.jwks.endpoint.url")
        url = settings.string(url_name)
        if handler.rpartition(".")[2] == "OAuthBearerUnsecuredValidatorCallbackHandler":
            logger.warning(
                "listener %s believes unsigned tokens (%s): for development only", self.context.name, HANDLER
            )
            return self._unsecured(settings)
        elif not url:
            raise InvalidSetting(
                url_name, "", "OAUTHBEARER needs the keys of the token server: a https:// or file:// URL"
            )
        else:
            if urlsplit(url).scheme not in ("https", "http", "file"):
                raise InvalidSetting(url_name, url, "Use a https:// or file:// URL")
            try:
                import cryptography  # noqa: F401
            except ImportError:
                reason = "OAUTHBEARER needs the extra oauth: pip install 'millstream[oauth]'"
                raise InvalidSetting(url_name, url, reason) from None
            refresh = settings.integer(named("sasl.oauthbearer.jwks.endpoint.refresh.ms")) / 1000
            verifier = keys[url, refresh] = self._keys.get((url, refresh)) or Jwks(url, refresh)
        expected = Expected(
            settings.items(named("sasl.oauthbearer.expected.audience")),
            settings.string(named("sasl.oauthbearer.expected.issuer")),
            settings.integer(named("sasl.oauthbearer.clock.skew.seconds")),
            settings.string(named("sasl.oauthbearer.sub.claim.name")),
            settings.string(named("sasl.oauthbearer.scope.claim.name")),
        )
        return lambda: OAuthBearer(verifier, expected)

    def _unsecured(self, settings: BrokerSettings) -> Callable[[], Mechanism]:
        from millstream.broker.login.oauth import Expected, OAuthBearer, Unsecured

        name = settings.of_listener(self.context.name, "sasl.jaas.config", "OAUTHBEARER")
        text = settings.text(name)
        try:
            expected = Expected.unsecured(parse_jaas(text)[1] if text else {})
        except ValueError as error:
            raise InvalidSetting(name, "[hidden]", str(error), f"{name}: {error}") from None
        return lambda: OAuthBearer(Unsecured(), expected)
