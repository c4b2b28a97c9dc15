"""Who comes in: what the listeners with TLS and with logins need, and how it follows the settings.

Made only where a listener is not PLAINTEXT, and loaded only then.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from millstream.broker.login.credentials import CredentialStore
from millstream.broker.login.listener_login import ListenerLogin
from millstream.broker.network.buffer_budget import BufferBudget
from millstream.broker.network.handshakes import Handshakes
from millstream.broker.network.login_failures import LoginFailures
from millstream.broker.tls.listener_tls import ListenerTls

if TYPE_CHECKING:
    from millstream.broker.audit.log import Audit
    from millstream.broker.network.listener import ListenerContext
    from millstream.broker.server import Broker
    from millstream.cluster.image import Delta, Image
    from millstream.settings.resolve import BrokerSettings

logger = logging.getLogger("millstream.security")

EXPIRY_CHECK = 3600.0  # seconds
LOGIN_SHARE = 8  # logins may hold so much as this part of the memory for unfinished requests, besides it
LOGIN_THREADS = 2  # that hash passwords and check tokens
CREDENTIALS = ("scram", "api_keys", "tokens")  # tables of the image


class Security:
    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self.broker = broker
        self.handshakes = Handshakes(loop)
        self.failures = LoginFailures(broker.settings.integer("millstream.login.failures.per.address"))
        broker.admission.failures = self.failures
        self.tls: dict[str, ListenerTls] = {}  # by the name of the listener
        self.logins: dict[str, ListenerLogin] = {}
        self.login_budget = BufferBudget(broker.budget.limit // LOGIN_SHARE)
        self.threads = ThreadPoolExecutor(LOGIN_THREADS, "login")
        self.store = CredentialStore(
            lambda: broker.image,
            lambda: broker.tokens,
            lambda: broker.settings.text("delegation.token.secret.key") or "",
        )
        self._task: asyncio.Task[None] | None = None

    def prepare(self, context: ListenerContext) -> None:
        """Give a listener what its protocol needs. InvalidSetting if that cannot be."""
        if context.protocol.endswith("SSL"):
            context.tls = self.tls[context.name] = ListenerTls(
                self.broker.settings, context.name, context.protocol
            )
        if context.protocol.startswith("SASL"):
            login = self.logins[context.name] = ListenerLogin(
                context,
                self.broker.settings,
                self.store,
                self.failures,
                self.threads,
                self.failure_delay,
                self.login_budget,
            )
            context.login = login.begin

    def use_audit(self, audit: Audit) -> None:
        self.failures.audit = audit
        for login in self.logins.values():
            login.audit = audit

    def failure_delay(self) -> float:
        return self.broker.settings.integer("connection.failed.authentication.delay.ms") / 1000

    # ------------------------------------------------------------------ settings

    def check(self, settings: BrokerSettings) -> None:
        """Raise InvalidSetting unless the listeners could go on with these settings."""
        for tls in self.tls.values():
            tls.check(settings)
        for login in self.logins.values():
            login.check(settings)

    def settings_changed(self) -> None:
        settings = self.broker.settings
        for tls in self.tls.values():
            tls.follow(settings)
        for login in self.logins.values():
            login.follow(settings)
        self.failures.per_address = settings.integer("millstream.login.failures.per.address")

    # ------------------------------------------------------------------ credentials that are gone

    def metadata_changed(self, image: Image, delta: Delta) -> None:
        """End the sessions of those whose credential was removed."""
        if not delta.changed(*CREDENTIALS) or not self.broker.settings.boolean("millstream.revoke.closes"):
            return
        gone = {
            (table, key)
            for table, key in delta.security
            if table in CREDENTIALS and key not in getattr(image, table)
        }
        if not gone:
            return
        for connection in list(self.broker.admission.open):
            identity = getattr(connection.session, "identity", None)
            if identity is not None and identity.credential in gone:
                connection.close(f"the credential of {connection.principal} was removed")

    # ------------------------------------------------------------------ files

    def start(self) -> None:
        if self.tls:
            self._task = asyncio.create_task(self._watch_files())

    async def _watch_files(self) -> None:
        loop = asyncio.get_running_loop()
        since_check = EXPIRY_CHECK
        while True:
            if since_check >= EXPIRY_CHECK:
                since_check = 0.0
                for tls in self.tls.values():
                    tls.warn_of_expiry()
            interval = self.broker.settings.integer("millstream.tls.reload.ms") / 1000
            pause = interval or 10.0
            await asyncio.sleep(pause)
            since_check += pause
            if not interval:
                continue
            for tls in self.tls.values():
                stamp = tls.changed_files()
                if stamp is not None:
                    try:
                        await loop.run_in_executor(None, tls.reload, self.broker.settings, stamp)
                    except Exception:
                        logger.exception("the changed certificates of %s were not read", tls.listener)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.handshakes.close()
        self.threads.shutdown(wait=False, cancel_futures=True)
