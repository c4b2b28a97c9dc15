"""One connection to one broker.

After connecting it asks which versions the broker speaks, once, and then uses for every request the highest
version that both sides know. A broker older than the question answers it in version 0, which is understood
too.

Requests may be sent ahead: a broker answers a connection's requests in order, so `receive` is called in the
order of `send`. Between `hold` and `flush` they are kept, and then go out in one piece: neither side is woken
for each of them. After any failure of the transport the connection is closed for good; whoever holds it opens
another.
"""

import struct
import time
from types import TracebackType
from typing import Any

from millstream import __version__
from millstream.client.config import ClientConfig
from millstream.client.errors import Unreachable, check
from millstream.client.messages import API_KEYS, exchange, known_versions, request_header
from millstream.client.transport import open_transport
from millstream.wire.compression import Buffer
from millstream.wire.errors import ErrorCode, KafkaError

LARGEST_ANSWER = 1 << 29  # a size beyond this is not an answer but another protocol

_SIZE = struct.Struct(">i")
_SIZE_AND_ID = struct.Struct(">ii")


class Connection:
    """A broker to talk to. Not for several threads at once."""

    def __init__(self, config: ClientConfig, host: str, port: int) -> None:
        self.config = config
        self.endpoint = (host, port)
        self._client_id = config.client_id.encode()
        self._next_id = 0
        self._waiting: list[int] = []
        self._held: list[Buffer] | None = None
        self.closed = False
        self.features: dict[str, int] = {}
        """The cluster's finalized levels, as they were when this was opened."""
        self._transport = open_transport(config, host, port)
        self.address = self._transport.address
        try:
            self.versions = self._request_versions()
            if config.sasl is not None:
                from millstream.client.sasl import log_in

                log_in(self.request, config.sasl, self.address)
        except KafkaError:
            self.close()
            raise

    # --- requests -------------------------------------------------------------------------------------------

    def request(
        self, api: str, /, *, within: float | None = None, up_to: int | None = None, **fields: Any
    ) -> Any:
        """Send one request and wait for its answer, for `within` seconds. `up_to` limits the version. All
        else are the fields of the request, times in milliseconds."""
        version = self.version(api, up_to=up_to)
        form = exchange(api, version)
        self.send(form.key, version, form.flexible, [form.encode(fields)])
        return form.decode(self.receive(within))

    def version(self, api: str, *, at_least: int = 0, up_to: int | None = None) -> int:
        """The highest version that broker and client both know."""
        mine = known_versions(api)
        theirs = self.versions.get(API_KEYS[api])
        if theirs is None:
            raise KafkaError(
                ErrorCode.unsupported_version, f"the broker at {self.address} does not offer {api}"
            )
        low = max(mine[0], theirs[0], at_least)
        high = min(mine[1], theirs[1])
        if up_to is not None:
            high = min(high, up_to)
        if low > high:
            raise KafkaError(
                ErrorCode.unsupported_version,
                f"the broker at {self.address} speaks {api} in versions {theirs[0]} to {theirs[1]}, "
                f"which this client cannot use here (it needs {max(mine[0], at_least)} to {mine[1]})",
            )
        return high

    def send(
        self, key: int, version: int, flexible: bool, body: list[Buffer], timeout: float | None = None
    ) -> None:
        """Send a request without waiting. `body` may be in several parts, so that records need no copy."""
        if self.closed:
            raise Unreachable(f"the connection to the broker at {self.address} is closed")
        correlation_id = self._next_id
        self._next_id = (correlation_id + 1) & 0x7FFFFFFF
        header = request_header(key, version, correlation_id, self._client_id, flexible)
        size = len(header) + sum(len(part) for part in body)
        # Before it goes out: a Ctrl-C behind the last byte would leave an answer that nobody expects.
        self._waiting.append(correlation_id)
        parts: list[Buffer] = [_SIZE.pack(size) + header, *body]
        if self._held is not None:
            self._held += parts
        else:
            self._send(parts, timeout)

    def _send(self, parts: list[Buffer], timeout: float | None = None) -> None:
        try:
            self._transport.send(parts, self._deadline(timeout))
        except BaseException:  # also a Ctrl-C: nobody knows how much went out
            self.close()
            raise

    def hold(self) -> None:
        """Keep what is sent from now on until `flush`."""
        self._held = []

    def flush(self) -> None:
        held, self._held = self._held, None
        if held and not self.closed:
            self._send(held)

    def receive(self, timeout: float | None = None) -> memoryview:
        """The answer to the oldest request sent and not yet answered, from after the correlation id on."""
        if self.closed:
            raise Unreachable(f"the connection to the broker at {self.address} is closed")
        if not self._waiting:
            raise RuntimeError("no request is waiting for an answer")
        deadline = self._deadline(timeout)
        try:
            head = bytearray(8)
            self._transport.receive_into(memoryview(head), deadline)
            size, correlation_id = _SIZE_AND_ID.unpack(head)
            if not 4 <= size <= LARGEST_ANSWER or correlation_id != self._waiting[0]:
                raise Unreachable(
                    f"what answers at {self.address} does not speak Kafka's protocol", again=False
                )
            body = memoryview(bytearray(size - 4))
            self._transport.receive_into(body, deadline)
        except BaseException:
            self.close()
            raise
        del self._waiting[0]
        return body.toreadonly()

    @property
    def usable(self) -> bool:
        """Open, and with no answer outstanding that someone has given up on."""
        return not self.closed and not self._waiting

    def fileno(self) -> int:
        """For `select`: readable when an answer (or the end) has come."""
        return self._transport.fileno()

    def no_answer_expected(self) -> None:
        """The request sent last gets no answer (a produce with acks=0)."""
        self._waiting.pop()

    # --- life -----------------------------------------------------------------------------------------------

    def close(self) -> None:
        self.closed = True
        self._transport.close()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _deadline(self, timeout: float | None) -> float:
        return time.monotonic() + (self.config.request_timeout if timeout is None else timeout)

    def _request_versions(self) -> dict[int, tuple[int, int]]:
        try:
            answer = self._versions_in(known_versions("api_versions")[1])
            if answer.error_code is ErrorCode.unsupported_version:
                answer = self._versions_in(0)
        except Unreachable as error:
            if not error.again:
                raise
            raise Unreachable(
                f"{error.message} (is it a Kafka broker, and is "
                f"security.protocol={self.config.security_protocol} "
                "right for this listener?)"
            ) from None
        check(answer.error_code, subject=f"the broker at {self.address}")
        self.features = {
            str(feature.name): int(feature.max_version_level)
            for feature in getattr(answer, "finalized_features", ())
        }
        return {int(api.api_key): (int(api.min_version), int(api.max_version)) for api in answer.api_keys}

    def _versions_in(self, version: int) -> Any:
        form = exchange("api_versions", version)
        fields = {"client_software_name": "millstream", "client_software_version": __version__}
        self.send(form.key, version, form.flexible, [form.encode(fields)], self.config.connect_timeout)
        body = self.receive(self.config.connect_timeout)
        # Refused: this answer comes in version 0, whatever was requested.
        if version and bytes(body[:2]) == b"\0\x23":
            form = exchange("api_versions", 0)
        return form.decode(body)
