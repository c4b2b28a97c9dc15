"""The TLS of one listener while the broker runs: its present context, and how a newer one takes its place.

New keys come by IncrementalAlterConfigs (KIP-226: the same value counts as a change, for the file may be new)
or by a file that has changed on disk. A new context is used only if its key fits its certificate, which has
not expired and has the distinguished name and the alternative names of before, so that no client is locked
out by a wrong file; the trust store may change freely. Connections that are open stay as they are.
"""

from __future__ import annotations

import logging
import os
import time

from millstream.broker.tls.stores import Material, TlsSettings, build
from millstream.settings.resolve import BrokerSettings
from millstream.settings.values import InvalidSetting

logger = logging.getLogger("millstream.tls")

WARN_BEFORE = 14 * 86400.0  # seconds before a certificate expires
WARN_EVERY = 86400.0

Stamp = tuple[tuple[str, int, int, int], ...]


class ListenerTls:
    def __init__(self, settings: BrokerSettings, listener: str, protocol: str) -> None:
        """InvalidSetting if the listener cannot speak TLS with these settings."""
        self.listener = listener
        self._protocol = protocol
        self.settings = TlsSettings(settings, listener, protocol)
        self._stamp = _stamp(self.settings)
        self.material = build(self.settings)
        self.reloads = 0
        self._refused: Stamp | None = None  # files that were tried already
        self._warned = 0.0
        for warning in self.material.warnings:
            logger.warning("%s", warning)

    # ------------------------------------------------------------------ changes

    def check(self, settings: BrokerSettings) -> Material | None:
        """What these settings of the broker would give; None if they say what holds already. InvalidSetting
        if they must not come into force."""
        wanted = TlsSettings(settings, self.listener, self._protocol)
        if wanted.values == self.settings.values and _stamp(wanted) == self._stamp:
            return None
        return self._compatible(build(wanted), wanted, settings)

    def follow(self, settings: BrokerSettings) -> None:
        """Take over what the settings say now, if it can be used."""
        wanted = TlsSettings(settings, self.listener, self._protocol)
        stamp = _stamp(wanted)
        try:
            material = self.check(settings)
        except InvalidSetting as error:
            self._refuse(stamp, error)
            return
        if material is not None:
            self._use(material, wanted, stamp)

    def changed_files(self) -> Stamp | None:
        """The files as they are now, if they are others than those in use and have not been refused."""
        stamp = _stamp(self.settings)
        return None if stamp in (self._stamp, self._refused) else stamp

    def reload(self, settings: BrokerSettings, stamp: Stamp) -> None:
        """Read changed files; called in a helper thread."""
        try:
            material = self._compatible(build(self.settings), self.settings, settings)
        except InvalidSetting as error:
            self._refuse(stamp, error)
            return
        self._use(material, self.settings, stamp)

    def _use(self, material: Material, settings: TlsSettings, stamp: Stamp) -> None:
        self.material, self.settings, self._stamp, self._refused = material, settings, stamp, None
        self.reloads += 1
        self._warned = 0.0
        logger.info(
            "listener %s uses new keys and certificates; its own is good for %d days",
            self.listener,
            (material.certificate.not_after - time.time()) // 86400,
        )

    def _refuse(self, stamp: Stamp, error: InvalidSetting) -> None:
        self._refused = stamp
        logger.error("listener %s keeps its old keys and certificates: %s", self.listener, error.message)

    def _compatible(self, new: Material, tls: TlsSettings, settings: BrokerSettings) -> Material:
        old, now = self.material.certificate, new.certificate
        name = (
            "ssl.keystore.location"
            if tls.values["ssl.keystore.location"]
            else "ssl.keystore.certificate.chain"
        )
        if now.not_after <= time.time():
            raise tls.wrong(name, "The new certificate has expired")
        if now.subject != old.subject and not settings.boolean("ssl.allow.dn.changes"):
            raise tls.wrong(
                name,
                f"Keystore DistinguishedName does not match: existing={old.subject}, new={now.subject} "
                "(ssl.allow.dn.changes)",
            )
        missing = old.alt_names - now.alt_names
        if missing and not settings.boolean("ssl.allow.san.changes"):
            raise tls.wrong(
                name,
                f"Keystore SubjectAltNames do not match: {', '.join(sorted(missing))} would be lost "
                "(ssl.allow.san.changes)",
            )
        return new

    # ------------------------------------------------------------------ expiry

    def expires_in(self) -> float:
        """Seconds; negative when it is too late."""
        return self.material.certificate.not_after - time.time()

    def warn_of_expiry(self) -> None:
        """Once a day from two weeks before."""
        left, now = self.expires_in(), time.monotonic()
        if left < WARN_BEFORE and (not self._warned or now - self._warned >= WARN_EVERY):
            self._warned = now
            if left > 0:
                logger.warning(
                    "the certificate of listener %s expires in %.1f days: replace it",
                    self.listener,
                    left / 86400,
                )
            else:
                logger.error("the certificate of listener %s has expired: clients refuse it", self.listener)


def _stamp(settings: TlsSettings) -> Stamp:
    found = []
    for path in settings.files():
        try:
            status = os.stat(path)
        except OSError:
            found.append((path, -1, -1, -1))
        else:
            found.append((path, status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)
