"""`zookeeper.connect`: host:port,host:port/chroot."""

from typing import NamedTuple

DEFAULT_PORT = 2181


class ConnectString(NamedTuple):
    hosts: tuple[tuple[str, int], ...]
    chroot: str = ""  # "" or "/path", without a slash at the end

    def __str__(self) -> str:
        shown = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        return ",".join(shown) + self.chroot


def parse_connect_string(text: str) -> ConnectString:
    """Raises ValueError, whose text is for the person who wrote the setting."""
    servers, slash, rest = text.strip().partition("/")
    chroot = ""
    if slash and rest.strip("/"):
        parts = rest.rstrip("/").split("/")
        if any(part in ("", ".", "..") for part in parts):
            raise ValueError(f"'/{rest}' cannot be a path in ZooKeeper")
        chroot = "/" + "/".join(parts)
    hosts = tuple(_host_and_port(part.strip()) for part in servers.split(",") if part.strip())
    if not hosts:
        raise ValueError("it names no server; write host:port,host:port/chroot")
    return ConnectString(hosts, chroot)


def _host_and_port(text: str) -> tuple[str, int]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"'{text}' is not host:port")
        port = rest[1:]
    else:
        host, colon, port = text.partition(":")
        if ":" in port:
            raise ValueError(f"'{text}' is not host:port; write an IPv6 address as [address]:port")
        port = port if colon else ""
    if not host or (port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536)):
        raise ValueError(f"'{text}' is not host:port")
    return host, int(port) if port else DEFAULT_PORT
