"""Websockets: the application finds the certificate of the client, as it does with other requests."""

from typing import Any, cast

from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto.events import Request

from millstream.http.certificate_callers import CERTIFICATE


class WebSocketProtocol(WSProtocol):
    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)  # the application begins in a later turn of the loop
        tls = self.transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        if certificate is not None:
            cast(dict[str, Any], self.scope)[CERTIFICATE] = certificate
