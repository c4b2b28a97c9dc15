"""Secrets in statements."""

from __future__ import annotations

import pytest

from millstream.sql.masking import masked


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "CREATE SOURCE CONNECTOR c WITH ('connector.class'='Jdbc', 'connection.password'='s3cret');",
            "CREATE SOURCE CONNECTOR c WITH ('connector.class'='Jdbc', 'connection.password'='[string]');",
        ),
        (
            "create sink connector if not exists `c` with (\"a.b\" = 'it''s', password='s3cret', n = 1)",
            "create sink connector if not exists `c` with (\"a.b\" = '[string]', password='[string]', n = 1)",
        ),
        # What cannot be parsed.
        (
            "CREATE SOURCE CONNECTOR c WITH ('p'='s3cret', oops)",
            "CREATE SOURCE CONNECTOR c WITH ('p'='[string]', oops)",
        ),
        (
            "CREATE SOURCE CONNECTOR c WITH ('p' 's3cret')",
            "CREATE SOURCE CONNECTOR c WITH ('[string]' '[string]')",
        ),
        ("CREATE SOURCE CONNECTOR c WITH ('p'='s3cret", "CREATE SOURCE CONNECTOR c WITH ('[string]'"),
        # Nothing to hide.
        (
            "CREATE STREAM s (a INT) WITH (kafka_topic='t');",
            "CREATE STREAM s (a INT) WITH (kafka_topic='t');",
        ),
        ("DROP CONNECTOR c;", "DROP CONNECTOR c;"),
    ],
)
def test_values_of_connectors_are_hidden(text: str, shown: str) -> None:
    assert masked(text) == shown
