"""Envelope 0 (KIP-590): what other brokers forward to the controller, see `broker/forwarding.py`.

Accepted from brokers only: on the listener that brokers use among themselves. The request inside is carried
out in the name of the client that it came from, as if that were connected here, and only if its API is one
that brokers forward. A broker that is not the controller answers NOT_CONTROLLER, and the other one looks for
the new one.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from millstream.broker.network.dispatch import Api, Call, ForwardedClient
from millstream.wire.envelope import (
    BROKER_ITSELF,
    ENVELOPE,
    EnvelopeResponse,
    pack_envelope_response,
    read_address,
    read_principal,
)
from millstream.wire.errors import ErrorCode
from millstream.wire.messages import body_start, codec
from millstream.wire.primitives import BAD_FRAME

if TYPE_CHECKING:
    from millstream.broker.server import Broker

_HEADER = struct.Struct(">hhih")  # API key, version, correlation id, size of the client id


class EnvelopeApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def apis(self) -> list[Api]:
        return [Api(ENVELOPE, "Envelope", 0, 0, self.envelope, between_brokers=True)]

    async def envelope(self, call: Call) -> bytes:
        response = await self._opened(call)
        return call.codec.pack(call.correlation_id, pack_envelope_response(response))

    async def _opened(self, call: Call) -> EnvelopeResponse:
        controller = self.broker.controller
        if not self.broker.is_from_broker(call):
            return EnvelopeResponse(ErrorCode.cluster_authorization_failed, None)
        if not controller.leading:
            return EnvelopeResponse(ErrorCode.not_controller, None)
        try:
            inner = await self._inner(call)
        except BAD_FRAME:
            return EnvelopeResponse(ErrorCode.invalid_request, None)
        if inner is None:
            return EnvelopeResponse(ErrorCode.invalid_request, None)
        epoch = self.broker.image.controller_epoch
        frame = await self.broker.dispatcher.run_forwarded(*inner)
        if not controller.leading or self.broker.image.controller_epoch != epoch:
            return EnvelopeResponse(ErrorCode.not_controller, None)
        return EnvelopeResponse(ErrorCode.none, frame[4:], self.broker.image.version)

    async def _inner(self, call: Call) -> tuple[Api, Call] | None:
        """The request inside, read; None if it is not one that brokers forward. One of BAD_FRAME if it cannot
        be read."""
        request: Any = call.request
        frame = memoryview(request.request_data)
        key, version, correlation_id, size = _HEADER.unpack_from(frame)
        dispatcher = self.broker.dispatcher
        api = dispatcher.apis.get(key)
        if api is None or not (api.forwarded or api.forwardable) or not api.lowest <= version <= api.highest:
            return None
        message_codec = codec(key, version)
        start = body_start(frame, size, message_codec.flexible)
        principal, host = (
            read_principal(request.request_principal or b""),
            read_address(request.client_host_address),
        )
        if principal == BROKER_ITSELF:  # as whom that broker has logged in
            principal, host = call.principal, call.host
        client = ForwardedClient(
            call.connection,
            principal,
            host,
            str(frame[10 : 10 + max(size, 0)], "utf-8", "replace"),
        )
        inner = Call(client, message_codec, correlation_id, None)  # type: ignore[arg-type]
        inner.is_forwarded = True
        inner.is_large = call.is_large
        if call.is_large:
            limit = dispatcher.max_elements()
            inner.request = await dispatcher.in_thread(message_codec.read, frame, start, limit)
        else:
            inner.request = message_codec.read(frame, start)
        return api, inner
