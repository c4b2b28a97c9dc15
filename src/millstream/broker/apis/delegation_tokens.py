"""Delegation tokens (KIP-48).

CreateDelegationToken 1-3
     2  flexible    3  for another owner (KIP-373)
RenewDelegationToken 1-2, ExpireDelegationToken 1-2
     2  flexible
DescribeDelegationToken 1-3
     2  flexible    3  who requested the token (KIP-373)

A token can be had only over a connection that says who is asking: not on a PLAINTEXT listener, not over SSL
without a client certificate, and not with a token. What tokens are is in `broker.tokens`.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from millstream.broker.authorizer import DELEGATION_TOKEN, DESCRIBE, USER, may
from millstream.broker.network.dispatch import Api, Call
from millstream.broker.network.slices import Slices
from millstream.cluster.security import MAX_RENEWERS
from millstream.cluster.security_commands import CreateToken, ExpireToken, RenewToken
from millstream.cluster.security_records import Token
from millstream.wire.acls import Operation
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.server import Broker

ANONYMOUS = "User:ANONYMOUS"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_LAST_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MS


class DelegationTokensApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.tokens = broker.tokens

    def apis(self) -> list[Api]:
        return [
            Api(38, "CreateDelegationToken", 1, 3, self.create, forwardable=True),
            Api(39, "RenewDelegationToken", 1, 2, self.renew, forwardable=True),
            Api(40, "ExpireDelegationToken", 1, 2, self.expire, forwardable=True),
            Api(41, "DescribeDelegationToken", 1, 3, self.describe),
        ]

    def _check(self, call: Call) -> None:
        self._check_session(call)
        self._check_enabled(call)

    def _check_session(self, call: Call) -> None:
        """The broker that the client is connected to has checked what is forwarded."""
        if call.is_forwarded:
            return
        protocol = call.connection.context.protocol
        if (
            protocol == "PLAINTEXT"
            or (protocol == "SSL" and call.principal == ANONYMOUS)
            or call.connection.token_authenticated
        ):
            raise KafkaError(ErrorCode.delegation_token_request_not_allowed)

    def _check_enabled(self, call: Call) -> None:
        if not call.is_forwarded and not self.tokens.enabled:
            raise KafkaError(ErrorCode.delegation_token_auth_disabled)

    async def _by_controller(self, call: Call) -> Any:
        """Its answer, where another broker is the controller."""
        if self.broker.controller.leading or call.is_forwarded:
            return None
        return await self.broker.forwarding.forward_message(call, call.request)

    # ------------------------------------------------------------------ create

    async def create(self, call: Call) -> Any:
        request, settings = call.request, self.broker.settings
        requester = owner = call.principal
        if call.version >= 3 and request.owner_principal_name:
            owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
        try:
            self._check_session(call)
            if owner != requester and not self._may_act_for(call, owner):
                raise KafkaError(ErrorCode.delegation_token_authorization_failed)
            if not owner.startswith("User:"):  # other types are not people: one of them stands for a broker
                raise KafkaError(ErrorCode.invalid_principal_type)
            if len(request.renewers) > MAX_RENEWERS:
                raise KafkaError(ErrorCode.invalid_request)
            if any(renewer.principal_type != "User" for renewer in request.renewers):
                raise KafkaError(ErrorCode.invalid_principal_type)
            self._check_enabled(call)
            if (answer := await self._by_controller(call)) is not None:
                return answer
            longest = settings.integer("delegation.token.max.lifetime.ms")
            wanted = request.max_lifetime // _MS
            token = await self.broker.controller.submit(
                CreateToken(
                    uuid4().hex,
                    owner,
                    requester,
                    [f"User:{renewer.principal_name}" for renewer in request.renewers],
                    _now_ms(),
                    min(wanted, longest) if wanted > 0 else longest,
                    settings.integer("delegation.token.expiry.time.ms"),
                )
            )
        except KafkaError as error:
            return self._created(call, error.code, Token("", owner, requester, (), 0, 0, 0))
        return self._created(call, ErrorCode.none, token)

    def _may_act_for(self, call: Call, owner: str) -> bool:
        """A right on all users, as a service has that acts for whoever calls it, is none on super users:
        whoever breaks into the service would be one."""
        authorizer = self.broker.authorizer
        if (
            authorizer is not None
            and owner in authorizer.super_users
            and call.principal not in authorizer.super_users
        ):
            return False
        return may(authorizer, call, Operation.CREATE_TOKENS, USER, owner)

    def _created(self, call: Call, error: ErrorCode, token: Token) -> Any:
        owner_type, _, owner = token.owner.partition(":")
        requester_type, _, requester = token.requester.partition(":")
        return call.answer(
            error_code=error,
            principal_type=owner_type,
            principal_name=owner,
            token_requester_principal_type=requester_type,
            token_requester_principal_name=requester,
            issue_timestamp=_moment(token.issued_ms),
            expiry_timestamp=_moment(token.expires_ms),
            max_timestamp=_moment(token.max_ms),
            token_id=token.token_id,
            hmac=b"" if error else self.tokens.hmac_of(token.token_id),
        )

    # ------------------------------------------------------------------ renew, expire

    async def renew(self, call: Call) -> Any:
        period = self.broker.settings.integer("delegation.token.expiry.time.ms")
        wanted = call.request.renew_period // _MS
        if wanted > 0:
            period = min(period, wanted)
        try:
            self._check(call)
            if (answer := await self._by_controller(call)) is not None:
                return answer
            token = self._found(call)
            expires = await self.broker.controller.submit(
                RenewToken(token.token_id, call.principal, _now_ms(), period)
            )
        except KafkaError as error:
            return call.answer(error_code=error.code, expiry_timestamp=_moment(0))
        return call.answer(error_code=ErrorCode.none, expiry_timestamp=_moment(expires))

    async def expire(self, call: Call) -> Any:
        period = call.request.expiry_time_period // _MS
        try:
            self._check(call)
            if (answer := await self._by_controller(call)) is not None:
                return answer
            token = self._found(call)
            expires = await self.broker.controller.submit(
                ExpireToken(token.token_id, call.principal, _now_ms(), period)
            )
        except KafkaError as error:
            return call.answer(error_code=error.code, expiry_timestamp=_moment(0))
        return call.answer(error_code=ErrorCode.none, expiry_timestamp=_moment(expires))

    def _found(self, call: Call) -> Token:
        token = self.tokens.find(call.request.hmac)
        if token is None:
            raise KafkaError(ErrorCode.delegation_token_not_found)
        return token

    # ------------------------------------------------------------------ describe

    def describe(self, call: Call) -> Slices[Any]:
        try:
            self._check(call)
        except KafkaError as error:
            return call.answer(error_code=error.code, tokens=())
        owners: set[str] | None = None
        if call.request.owners is not None:
            owners = set()
            for owner in call.request.owners:
                owners.add(f"{owner.principal_type}:{owner.principal_name}")
                yield
        found = []
        for token in list(self.broker.image.tokens.values()):
            if self._visible(call, token, owners):
                found.append(self._described(call, token))
            yield
        return call.answer(error_code=ErrorCode.none, tokens=tuple(found))

    def _visible(self, call: Call, token: Token, owners: set[str] | None) -> bool:
        """Who owns, requested or may renew a token sees it; others need a right."""
        concerned = {token.owner, token.requester, *token.renewers}
        if owners is not None and not owners & concerned:
            return False
        authorizer = self.broker.authorizer
        return (
            call.principal in concerned
            or may(authorizer, call, DESCRIBE, DELEGATION_TOKEN, token.token_id, quiet=True)
            or may(authorizer, call, Operation.DESCRIBE_TOKENS, USER, token.owner, quiet=True)
        )

    def _described(self, call: Call, token: Token) -> Any:
        owner_type, _, owner = token.owner.partition(":")
        requester_type, _, requester = token.requester.partition(":")
        renewers = [renewer.partition(":") for renewer in token.renewers]
        return call.make(
            "DescribedDelegationToken",
            principal_type=owner_type,
            principal_name=owner,
            token_requester_principal_type=requester_type,
            token_requester_principal_name=requester,
            issue_timestamp=token.issued_ms,
            expiry_timestamp=token.expires_ms,
            max_timestamp=token.max_ms,
            token_id=token.token_id,
            hmac=self.tokens.hmac_of(token.token_id),
            renewers=tuple(
                call.make("DescribedDelegationTokenRenewer", principal_type=kind, principal_name=name)
                for kind, _, name in renewers
            ),
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _moment(ms: int) -> datetime:
    return _EPOCH + min(ms, _LAST_MS) * _MS
