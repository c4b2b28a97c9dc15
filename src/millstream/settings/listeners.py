"""Where the broker listens, and which addresses it advertises.

`listeners` is a list of NAME://host:port. A name is a security protocol, or any word that
`listener.security.protocol.map` maps to one; case does not matter. The broker binds these and advertises the
addresses in `advertised.listeners`, or the same ones where that is not set. A client that came in through one
listener gets the addresses of that listener only, so each address must be reachable from where its clients
are: every interface (0.0.0.0, or an empty host) can be bound but not advertised.

Listeners that belong to Kafka's controller (`controller.listener.names`) are left out, so that a file written
for a KRaft node works.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from millstream.settings.resolve import BrokerSettings
from millstream.settings.values import InvalidSetting, split

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
EVERY_INTERFACE = ("", "0.0.0.0", "::")  # noqa: S104


class Listener(NamedTuple):
    name: str
    protocol: str
    host: str  # without brackets; empty for every interface
    port: int  # 0 for a free one

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class Listeners(NamedTuple):
    bound: tuple[Listener, ...]
    advertised: tuple[Listener, ...]
    inter_broker: str  # name of the listener that other brokers use

    def advertised_on(self, ports: Mapping[str, int]) -> dict[str, Listener]:
        """The advertised listeners by name, once the ports that were really bound are known."""
        return {
            each.name: each if each.port else each._replace(port=ports[each.name]) for each in self.advertised
        }


def parse_listeners(settings: BrokerSettings) -> Listeners:
    """The broker's listeners, checked. Raises InvalidSetting."""
    protocols = protocol_map(settings.string("listener.security.protocol.map"))
    left_out = {name.upper() for name in settings.items("controller.listener.names")}
    bound = _parse("listeners", settings.items("listeners"), protocols, left_out)
    if not bound:
        text = settings.text("listeners")
        raise InvalidSetting("listeners", text, "No listener is left for clients beside the controller's")
    _refuse_same_port(bound)
    advertised = _parse("advertised.listeners", settings.items("advertised.listeners"), protocols, left_out)
    _refuse_unknown_names(bound, advertised)
    advertised = advertised or tuple(_as_advertised(each) for each in bound)
    for each in advertised:
        if each.host in EVERY_INTERFACE:
            raise InvalidSetting(
                "advertised.listeners",
                str(each),
                f"Clients cannot connect to {each.host or 'an empty address'}; "
                "name an address that they can reach",
            )
    return Listeners(bound, advertised, _inter_broker(settings, advertised))


def protocol_map(text: str) -> dict[str, str]:
    """`A:SSL,B:PLAINTEXT` as a dict. Every protocol is also the name of a listener that speaks it."""
    setting = "listener.security.protocol.map"
    protocols = {protocol: protocol for protocol in PROTOCOLS}
    seen = set()
    for pair in split(text):
        name, colon, protocol = (item.strip().upper() for item in pair.rpartition(":"))
        if not colon or not name:
            raise InvalidSetting(setting, pair, "Expected NAME:PROTOCOL")
        if protocol not in PROTOCOLS:
            raise InvalidSetting(setting, pair, f"The protocol must be one of: {', '.join(PROTOCOLS)}")
        if name in seen:
            raise InvalidSetting(setting, text, f"Listener {name} is named twice")
        seen.add(name)
        protocols[name] = protocol
    return protocols


def parse_address(setting: str, text: str) -> tuple[str, int] | None:
    """`host:port` of one of our own listeners, such as millstream.metrics.listener; None for empty text."""
    if not text:
        return None
    host, _, port = text.rpartition(":")
    return host.strip("[]"), _port(setting, text, port)


def _parse(
    setting: str, texts: tuple[str, ...], protocols: Mapping[str, str], left_out: set[str]
) -> tuple[Listener, ...]:
    found: dict[str, Listener] = {}
    for text in texts:
        name, separator, address = text.partition("://")
        name = name.strip().upper()
        host, colon, port = address.rpartition(":")
        if not separator or not name or not colon or (":" in host and not _in_brackets(host)):
            raise InvalidSetting(setting, text, "Expected NAME://host:port")
        if name in left_out:
            continue
        if name not in protocols:
            raise InvalidSetting(
                setting,
                text,
                f"No security protocol for listener {name}; "
                f"add {name}:PROTOCOL to listener.security.protocol.map",
            )
        if name in found:
            raise InvalidSetting(
                setting, ",".join(texts), f"Each listener must have a different name; {name} has not"
            )
        found[name] = Listener(name, protocols[name], host.strip("[]"), _port(setting, text, port))
    return tuple(found.values())


def _in_brackets(host: str) -> bool:
    return host.startswith("[") and host.endswith("]")


def _port(setting: str, text: str, port: str) -> int:
    if not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) > 65535:
        raise InvalidSetting(setting, text, f"The port must be a number from 0 to 65535, not {port!r}")
    return int(port)


def _refuse_same_port(bound: tuple[Listener, ...]) -> None:
    """One port for two listeners only where one is IPv4 and the other IPv6; port 0 is a different one each
    time."""
    seen: dict[tuple[int, bool], Listener] = {}
    for each in bound:
        if not each.port:
            continue
        if each.host in EVERY_INTERFACE[:2]:
            families: tuple[bool, ...] = (False, True) if each.host == "" else (False,)
        else:
            families = (":" in each.host,)
        for family in families:
            other = seen.setdefault((each.port, family), each)
            if other is not each:
                text = ",".join(str(listener) for listener in bound)
                raise InvalidSetting(
                    "listeners",
                    text,
                    "Each listener must have a different port; "
                    f"{other.name} and {each.name} share {each.port}",
                )


def _refuse_unknown_names(bound: tuple[Listener, ...], advertised: tuple[Listener, ...]) -> None:
    names = [each.name for each in bound]
    for each in advertised:
        if each.name not in names:
            reason = f"There is no such listener; listeners has {', '.join(names)}"
            raise InvalidSetting("advertised.listeners", str(each), reason)


def _as_advertised(listener: Listener) -> Listener:
    """An empty host is advertised as this machine's name, as Kafka does."""
    if listener.host:
        return listener
    import socket

    return listener._replace(host=socket.gethostname())


def _inter_broker(settings: BrokerSettings, advertised: tuple[Listener, ...]) -> str:
    """The listener between brokers: as set, else the plain one, else the first."""
    names = [each.name for each in advertised]
    for setting in ("inter.broker.listener.name", "security.inter.broker.protocol"):
        if settings.is_set(setting):
            wanted = settings.string(setting).upper()
            if wanted not in names:
                reason = f"There is no such listener; advertised are {', '.join(names)}"
                raise InvalidSetting(setting, wanted, reason)
            return wanted
    return "PLAINTEXT" if "PLAINTEXT" in names else names[0]
