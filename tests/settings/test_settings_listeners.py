import pytest

from millstream.settings.listeners import Listener, parse_address, parse_listeners, protocol_map
from millstream.settings.resolve import BrokerSettings
from millstream.settings.values import InvalidSetting

MAP = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,EXTERNAL:SASL_SSL,INSIDE:PLAINTEXT"


def listeners(text: str, **more: str):  # type: ignore[no-untyped-def]
    static = {"listeners": text, "listener.security.protocol.map": MAP}
    static.update({name.replace("_", "."): value for name, value in more.items()})
    return parse_listeners(BrokerSettings(static))


def test_default() -> None:
    found = parse_listeners(BrokerSettings())
    assert found.bound == found.advertised == (Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092),)
    assert found.inter_broker == "PLAINTEXT"


def test_several() -> None:
    found = listeners(
        "plaintext://0.0.0.0:9092, EXTERNAL://[::1]:9093",
        advertised_listeners="PLAINTEXT://broker:9092,EXTERNAL://outside:443",
        inter_broker_listener_name="external",
    )
    assert found.bound == (
        Listener("PLAINTEXT", "PLAINTEXT", "0.0.0.0", 9092),  # noqa: S104
        Listener("EXTERNAL", "SASL_SSL", "::1", 9093),
    )
    assert [str(each) for each in found.advertised] == ["PLAINTEXT://broker:9092", "EXTERNAL://outside:443"]
    assert found.inter_broker == "EXTERNAL"
    assert str(found.bound[1]) == "EXTERNAL://[::1]:9093"


def test_ports_that_are_only_known_once_bound() -> None:
    found = listeners("PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0,EXTERNAL://127.0.0.1:5")
    advertised = found.advertised_on({"PLAINTEXT": 41, "INSIDE": 42, "EXTERNAL": 5})
    assert {name: each.port for name, each in advertised.items()} == {
        "PLAINTEXT": 41,
        "INSIDE": 42,
        "EXTERNAL": 5,
    }


def test_an_empty_host_is_advertised_as_this_machine() -> None:
    found = listeners("PLAINTEXT://:9092")
    assert found.bound[0].host == ""
    assert found.advertised[0].host


def test_a_kraft_file_works() -> None:
    found = listeners(
        "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2", controller_listener_names="CONTROLLER"
    )
    assert [each.name for each in found.bound] == ["PLAINTEXT"]


def test_the_same_port_twice_is_fine_for_two_address_families() -> None:
    assert len(listeners("PLAINTEXT://127.0.0.1:9092,EXTERNAL://[::1]:9092").bound) == 2


def test_only_tls() -> None:
    found = parse_listeners(BrokerSettings({"listeners": "SSL://127.0.0.1:9092"}))
    assert (found.inter_broker, found.bound[0].protocol) == ("SSL", "SSL")


@pytest.mark.parametrize(
    ("text", "more", "reason"),
    [
        ("garbage", {}, "NAME://host:port"),
        ("PLAINTEXT://host", {}, "NAME://host:port"),
        ("PLAINTEXT:host:1", {}, "NAME://host:port"),
        ("://host:1", {}, "NAME://host:port"),
        ("PLAINTEXT://::1:9092", {}, "NAME://host:port"),
        ("PLAINTEXT://host:abc", {}, "port must be a number"),
        ("PLAINTEXT://host:-1", {}, "port must be a number"),
        ("PLAINTEXT://host:65536", {}, "port must be a number"),
        ("PLAINTEXT://host:" + "9" * 5000, {}, "port must be a number"),
        ("FOO://host:1", {}, "No security protocol for listener FOO"),
        ("PLAINTEXT://h:1,plaintext://h:2", {}, "different name"),
        ("PLAINTEXT://h:1,EXTERNAL://h:1", {}, "different port"),
        ("PLAINTEXT://:1,EXTERNAL://[::1]:1", {}, "different port"),
        ("PLAINTEXT://0.0.0.0:1", {}, "cannot connect to 0.0.0.0"),
        ("PLAINTEXT://[::]:1", {}, "cannot connect to ::"),
        ("PLAINTEXT://h:1", {"advertised_listeners": "PLAINTEXT://0.0.0.0:1"}, "cannot connect to 0.0.0.0"),
        ("PLAINTEXT://h:1", {"advertised_listeners": "PLAINTEXT://:1"}, "cannot connect to an empty"),
        ("PLAINTEXT://h:1", {"advertised_listeners": "EXTERNAL://h:1"}, "no such listener"),
        ("PLAINTEXT://h:1", {"inter_broker_listener_name": "EXTERNAL"}, "no such listener"),
        ("PLAINTEXT://h:1", {"security_inter_broker_protocol": "SSL"}, "no such listener"),
        ("PLAINTEXT://h:1", {"controller_listener_names": "PLAINTEXT"}, "No listener is left"),
    ],
)
def test_refused(text: str, more: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason):
        listeners(text, **more)


def test_protocol_map() -> None:
    assert protocol_map("inside : ssl")["INSIDE"] == "SSL"
    assert protocol_map("")["SASL_SSL"] == "SASL_SSL"
    for text in ("A", "A:B", ":SSL", "A:SSL,A:PLAINTEXT"):
        with pytest.raises(InvalidSetting):
            protocol_map(text)


def test_parse_address() -> None:
    assert parse_address("x", "") is None
    assert parse_address("x", "127.0.0.1:9404") == ("127.0.0.1", 9404)
    assert parse_address("x", "[::1]:0") == ("::1", 0)
    assert parse_address("x", ":9404") == ("", 9404)
    with pytest.raises(InvalidSetting):
        parse_address("x", "9404x")
