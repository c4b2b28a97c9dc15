import pytest

from millstream.settings.config_def import BROKER, TOPIC
from millstream.settings.values import InvalidSetting, Password, Type, Value, host_limits, parse, to_text


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Type.BOOLEAN, " TRUE ", True),
        (Type.BOOLEAN, "false", False),
        (Type.INT, " -12 ", -12),
        (Type.INT, "+5", 5),
        (Type.INT, "2147483647", 2147483647),
        (Type.SHORT, "-32768", -32768),
        (Type.LONG, "9223372036854775807", 9223372036854775807),
        (Type.DOUBLE, "1e7", 1e7),
        (Type.DOUBLE, "1.7976931348623157E308", 1.7976931348623157e308),
        (Type.STRING, "  a b ", "a b"),
        (Type.LIST, "", ()),
        (Type.LIST, " a , b,,c ", ("a", "b", "", "c")),
        (Type.PASSWORD, " secret ", Password("secret")),
        (Type.CLASS, "a.b.C", "a.b.C"),
    ],
)
def test_parse(kind: Type, text: str, value: Value) -> None:
    assert parse("x", kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Type.BOOLEAN, "yes"),
        (Type.BOOLEAN, ""),
        (Type.INT, "2147483648"),
        (Type.INT, "1.0"),
        (Type.INT, "1_000"),
        (Type.INT, "٣"),
        (Type.INT, "-"),
        (Type.INT, ""),
        (Type.INT, "9" * 5000),
        (Type.SHORT, "32768"),
        (Type.LONG, "9223372036854775808"),
        (Type.DOUBLE, "nan"),
        (Type.DOUBLE, "inf"),
        (Type.DOUBLE, "1_0.0"),
        (Type.DOUBLE, "--1"),
        (Type.DOUBLE, ""),
    ],
)
def test_refused(kind: Type, text: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        parse("some.name", kind, text)
    assert caught.value.name == "some.name"
    assert caught.value.message.startswith(f"Invalid value {text} for configuration some.name: ")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (7, "7"),
        (0.5, "0.5"),
        (0.0, "0.0"),
        (1.0, "1.0"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (0.00012, "1.2E-4"),
        (1e300, "1.0E300"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (("a", "b"), "a,b"),
        ((), ""),
        (None, None),
        (Password("secret"), None),
    ],
)
def test_to_text(value: Value, text: str | None) -> None:
    assert to_text(value) == text


def test_password_does_not_show() -> None:
    secret = Password("hunter2")
    assert "hunter2" not in f"{secret} {secret!r} {[secret]}"
    assert secret.value == "hunter2"
    assert secret != Password("other")


def test_every_default_passes_its_own_check_and_reads_back() -> None:
    for setting in (*BROKER.values(), *TOPIC.values()):
        if setting.default is not None:
            assert to_text(setting.parse(setting.default)) == setting.default or setting.sensitive, (
                setting.name
            )


def test_every_setting_is_documented_in_whole_sentences() -> None:
    for setting in (*BROKER.values(), *TOPIC.values()):
        assert setting.doc.endswith("."), setting.name
        assert not setting.no_effect or setting.no_effect.endswith("."), setting.name


def test_secrets_are_passwords() -> None:
    words = ("password", "secret", "jaas", "passphrase")
    for name, setting in BROKER.items():
        if any(word in name for word in words):
            assert setting.sensitive, name


def test_list_rules() -> None:
    folders = BROKER["listeners"]
    for text in ("", "a,,b", "a,a"):
        with pytest.raises(InvalidSetting):
            folders.parse(text)
    assert TOPIC["cleanup.policy"].parse("delete,delete") == ("delete", "delete")


def test_host_limits() -> None:
    assert host_limits("x", "127.0.0.1:5, [::1]:7,host:0") == {"127.0.0.1": 5, "::1": 7, "host": 0}
    assert host_limits("x", "") == {}
    for text in ("a", "a:", ":5", "a:b", "a:-1"):
        with pytest.raises(InvalidSetting):
            host_limits("x", text)
