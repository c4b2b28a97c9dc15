"""Quotas, the audit log, ACLs, certificates and logins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.broker import quotas
from millstream.broker.metrics.page import Page, label

if TYPE_CHECKING:
    from millstream.broker.server import Broker


def add_security(page: Page, broker: Broker) -> None:
    """At most 1,000 entities: clients choose their ids."""
    found = list(quotas.rows(broker.quotas))
    for name, help, at in (
        ("rate", "What clients with a quota use: bytes or percent a second; of changes, what is left.", 3),
        ("bound", "Their quotas.", 4),
        ("throttled_seconds_total", "For how long they were told to wait.", 5),
    ):
        samples = [
            (f'quota="{row[0]}",user="{label(row[1])}",client_id="{label(row[2])}"', float(row[at]))
            for row in found
        ]
        page.add(f"millstream_quota_{name}", "counter" if at == 5 else "gauge", help, samples)
    page.one(
        "millstream_quota_muted_connections",
        "gauge",
        "Connections that are not listened to because they exceed a quota.",
        broker.quotas.muted,
    )
    if broker.audit is not None:
        for name, help, value in (
            ("events", "Events written to the audit log.", broker.audit.written),
            ("dropped", "Events that are missing from it.", broker.audit.dropped),
            ("failures", "Times that it could not be written.", broker.audit.failures),
        ):
            page.one(f"millstream_audit_{name}_total", "counter", help, value)
    if broker.authorizer is not None:
        page.one("millstream_acls", "gauge", "Access control lists.", len(broker.authorizer.index.acls))
        page.one(
            "millstream_denied_requests_total",
            "counter",
            "Operations that were refused for lack of a right.",
            broker.authorizer.denied,
        )


def add_logins(page: Page, broker: Broker) -> None:
    security = broker.security
    if security is None:
        return
    page.add(
        "millstream_certificate_expires_seconds",
        "gauge",
        "Seconds until the certificate of a listener expires.",
        [(f'listener="{label(name)}"', round(tls.expires_in())) for name, tls in security.tls.items()],
    )
    page.add(
        "millstream_certificate_reloads_total",
        "counter",
        "New keys and certificates of a listener that came into use.",
        [(f'listener="{label(name)}"', tls.reloads) for name, tls in security.tls.items()],
    )
    page.one(
        "millstream_unfinished_login_bytes",
        "gauge",
        "Memory held by unfinished messages of logins.",
        security.login_budget.used,
    )
    handshakes = security.handshakes
    for name, metric_type, help, value in (
        ("tls_handshakes_total", "counter", "TLS handshakes that succeeded.", handshakes.done),
        ("tls_handshakes_failed_total", "counter", "TLS handshakes that failed.", handshakes.failed),
        ("tls_handshakes_open", "gauge", "TLS handshakes under way.", handshakes.half_open),
        ("login_failures_total", "counter", "Logins and handshakes refused.", security.failures.total),
        (
            "logins_turned_away_total",
            "counter",
            "Connections closed at once because of earlier failures from their address.",
            security.failures.turned_away,
        ),
    ):
        page.one(f"millstream_{name}", metric_type, help, value)
    for name, help, attribute in (
        ("logins_total", "Logins that succeeded.", "successes"),
        ("logins_again_total", "Logins of connections that were logged in already.", "again"),
        ("sessions_expired_total", "Sessions closed because they did not log in again.", "expired"),
    ):
        page.add(
            f"millstream_{name}",
            "counter",
            help,
            [
                (f'listener="{label(listener)}"', getattr(login, attribute))
                for listener, login in security.logins.items()
            ],
        )
