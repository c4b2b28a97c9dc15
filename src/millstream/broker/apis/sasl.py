"""SASL on a connection that is logged in, or needs no login.

SaslHandshake 0-1
     1  tokens travel in SaslAuthenticate (KIP-152); after version 0 they are frames of their own
SaslAuthenticate 0-2
     1  the session's lifetime (KIP-368)    2  flexible

The login itself is `broker/login`, before the dispatcher. Here SaslHandshake begins it anew (KIP-368); where
nobody has to log in, both are answered ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from datetime import timedelta

from millstream.broker.network.connection import Connection
from millstream.broker.network.dispatch import Api
from millstream.wire.errors import ErrorCode
from millstream.wire.messages import codec

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36


class SaslApi:
    def __init__(self, broker: object) -> None:
        pass

    def apis(self) -> list[Api]:
        return [
            Api(SASL_HANDSHAKE, "SaslHandshake", 0, 1, raw=self.handshake),
            Api(SASL_AUTHENTICATE, "SaslAuthenticate", 0, 2, raw=self.authenticate),
        ]

    def handshake(
        self, connection: Connection, frame: memoryview, _size: int, version: int, correlation_id: int
    ) -> None:
        session = connection.session
        if session is None:
            form = codec(SASL_HANDSHAKE, version)
            answer = form.answer(error_code=ErrorCode.illegal_sasl_state, mechanisms=())
            connection.send(form.pack(correlation_id, answer))
            return
        from millstream.broker.login.login import Session, log_in_again

        if isinstance(session, Session):
            log_in_again(connection, session, frame, 0, len(frame))
        else:  # another SaslHandshake is under way, in frames of the same turn
            connection.front.dispatch(connection, frame, 0, len(frame))

    def authenticate(
        self, connection: Connection, frame: memoryview, _size: int, version: int, correlation_id: int
    ) -> None:
        # Behind a SaslHandshake, in frames of the same turn.
        if connection.front is not connection.dispatcher:
            connection.front.dispatch(connection, frame, 0, len(frame))
            return
        form = codec(SASL_AUTHENTICATE, version)
        answer = form.answer(
            error_code=ErrorCode.illegal_sasl_state,
            error_message="SaslAuthenticate request received after successful authentication",
            auth_bytes=b"",
            session_lifetime=timedelta(0),
        )
        connection.send(form.pack(correlation_id, answer))
