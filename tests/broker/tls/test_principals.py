"""Names of certificates and the rules that make users of them, held against Java
(vectors/Principals.java)."""

import json
from pathlib import Path

import pytest

from millstream.settings.principal_mapping import NoRuleMatches, PrincipalMapping
from millstream.settings.values import InvalidSetting
from millstream.wire.certificate import distinguished_name, read_certificate

VECTORS = json.loads((Path(__file__).parent / "vectors" / "principals.json").read_text())


@pytest.mark.parametrize(("der", "name"), VECTORS["names"])
def test_a_name_is_written_as_java_writes_it(der: str, name: str) -> None:
    assert distinguished_name(bytes.fromhex(der)) == name


@pytest.mark.parametrize(("rules", "name", "user"), VECTORS["rules"])
def test_rules_give_the_user_that_kafka_finds(rules: str, name: str, user: str | None) -> None:
    mapping = PrincipalMapping(rules)
    if user is None:
        with pytest.raises(NoRuleMatches):
            mapping.user(name)
    else:
        assert mapping.user(name) == user


@pytest.mark.parametrize(
    "rules", ["RULE:(/x/", "RULE:a/b", "nonsense", "RULE:(?=a)a/b/", "DEFAULT,,DEFAULT x"]
)
def test_rules_that_cannot_be_read(rules: str) -> None:
    with pytest.raises(InvalidSetting, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapping(rules)


@pytest.mark.parametrize("der", [b"", b"\x30", b"\x30\x82\xff\xff\x00", b"\x30\x03\x02\x01\x01", bytes(200)])
def test_bytes_that_are_no_certificate(der: bytes) -> None:
    with pytest.raises(ValueError, match=r"certificate|length|past the end"):
        read_certificate(der)
