"""The bytes between a client and one broker. TLS is another class (`tls`) with the same methods."""

import socket
import time
from typing import Protocol

from millstream.client.config import ClientConfig
from millstream.client.errors import TimedOut, Unreachable
from millstream.wire.compression import Buffer
from millstream.wire.sockets import send_unpaced


class Transport(Protocol):
    """A connected stream. Every method raises Unreachable or TimedOut, and then the stream is of no more
    use."""

    address: str

    def send(self, parts: list[Buffer], deadline: float) -> None: ...
    def receive_into(self, view: memoryview, deadline: float) -> None: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...


class PlainTransport:
    """A TCP socket."""

    __slots__ = ("_socket", "address")

    def __init__(self, host: str, port: int, timeout: float) -> None:
        self.address = f"{host}:{port}" if ":" not in host else f"[{host}]:{port}"
        try:
            self._socket = socket.create_connection((host, port), timeout)
        except TimeoutError:
            raise Unreachable(f"no broker answers at {self.address} within {timeout:g} s") from None
        except socket.gaierror:
            raise Unreachable(f"cannot reach a broker at {self.address}: the host name is unknown") from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise Unreachable(f"cannot reach a broker at {self.address}: {reason}") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        send_unpaced(self._socket)

    def send(self, parts: list[Buffer], deadline: float) -> None:
        views = [memoryview(part) for part in parts if len(part)]
        try:
            while views:
                self._socket.settimeout(self._left(deadline))
                sent = self._socket.sendmsg(views[:64])
                while views and sent >= len(views[0]):
                    sent -= len(views[0])
                    del views[0]
                if sent:
                    views[0] = views[0][sent:]
        except TimeoutError:
            raise self._late() from None
        except OSError as error:
            raise self._broken(error) from None

    def receive_into(self, view: memoryview, deadline: float) -> None:
        at, size = 0, len(view)
        try:
            while at < size:
                self._socket.settimeout(self._left(deadline))
                count = self._socket.recv_into(view[at:])
                if count == 0:
                    raise Unreachable(f"the broker at {self.address} closed the connection")
                at += count
        except TimeoutError:
            raise self._late() from None
        except OSError as error:
            raise self._broken(error) from None

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def _left(self, deadline: float) -> float:
        left = deadline - time.monotonic()
        if left <= 0:
            raise self._late()
        return left

    def _late(self) -> TimedOut:
        return TimedOut(f"no answer from the broker at {self.address} in time")

    def _broken(self, error: OSError) -> Unreachable:
        reason = (error.strerror or str(error)).lower()
        return Unreachable(f"the connection to the broker at {self.address} broke: {reason}")


def open_transport(config: ClientConfig, host: str, port: int) -> Transport:
    """The only code that knows which transport the configuration asks for."""
    if config.tls is not None:
        from millstream.client.tls import TlsTransport  # OpenSSL takes a while to load

        return TlsTransport(host, port, config.connect_timeout, config.tls)
    return PlainTransport(host, port, config.connect_timeout)
