"""What is hidden of settings and addresses before anybody sees them."""

import pytest

from millstream.serdes import SchemaRegistry
from millstream.settings.redaction import hide_url_passwords, is_secret, shown_value
from millstream.settings.values import InvalidSetting


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://host:8081", "http://host:8081"),
        ("http://ann:pw@host:8081/x?y=1", "http://ann:[hidden]@host:8081/x?y=1"),
        ("https://ann:p@w/d@host", "https://ann:[hidden]@host"),
        ("https://token@host", "https://[hidden]@host"),
        ("http://:pw@host", "http://:[hidden]@host"),
        ("http://a:1@h,http://b:2@i,http://j", "http://a:[hidden]@h,http://b:[hidden]@i,http://j"),
        (
            "401 for url 'http://a:pw@h/metrics', and ann@example.org",
            "401 for url 'http://a:[hidden]@h/metrics', and ann@example.org",
        ),
        ("ann@example.org", "ann@example.org"),
    ],
)
def test_passwords_in_addresses(text: str, shown: str) -> None:
    assert hide_url_passwords(text) == shown


def test_settings_by_name() -> None:
    for name in (
        "sasl.jaas.config",
        "listener.name.internal.plain.sasl.jaas.config",
        "ssl.key.password",
        "ssl.keystore.key",
        "basic.auth.user.info",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.client.credentials.client.secret",
    ):
        assert is_secret(name)
        assert shown_value(name, "x") == "[hidden]"
    for name in ("bootstrap.servers", "ssl.truststore.location", "basic.auth.credentials.source"):
        assert not is_secret(name)
    assert shown_value("schema.registry.url", "http://a:pw@h") == "http://a:[hidden]@h"


def test_errors_quote_no_password() -> None:
    assert "pw" not in str(
        InvalidSetting("metrics.urls", "x=htp://a:pw@h", "use name=http://host:port/metrics")
    )
    with pytest.raises(ValueError, match="is not the address") as refused:
        SchemaRegistry("htp://a:pw@h")
    assert "pw" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://idp/token?secret=hush", "https://idp/token?secret=[hidden]"),
        ("https://h/x?a=1&access_token=hush&b=2#c", "https://h/x?a=1&access_token=[hidden]&b=2#c"),
        (
            "jdbc:postgresql://h/db?user=ann&password=hush",
            "jdbc:postgresql://h/db?user=ann&password=[hidden]",
        ),
        (
            "https://h/?X-Amz-Signature=hush,https://i/?n=1",
            "https://h/?X-Amz-Signature=[hidden],https://i/?n=1",
        ),
        ("https://h/token?n=1", "https://h/token?n=1"),
        ("a?token=kept, as it is no URL", "a?token=kept, as it is no URL"),
    ],
)
def test_secrets_in_a_query_are_hidden(url: str, shown: str) -> None:
    assert hide_url_passwords(url) == shown
