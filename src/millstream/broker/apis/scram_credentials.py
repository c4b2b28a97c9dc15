"""DescribeUserScramCredentials 0 and AlterUserScramCredentials 0 (KIP-554).

A client sends a salted password, never the password; what is kept are the two keys that follow from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.broker.authorizer import ALTER, CLUSTER, DESCRIBE, may
from millstream.broker.network.dispatch import Api, Call
from millstream.broker.network.slices import Slices, collect, distinct
from millstream.cluster.commands import Result
from millstream.cluster.scram import MECHANISMS, AlterScram
from millstream.cluster.security_records import Scram, ScramGone
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.server import Broker

MAX_SALTED = 1000  # bytes, of a salted password and of a salt


class ScramCredentialsApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def apis(self) -> list[Api]:
        return [
            Api(50, "DescribeUserScramCredentials", 0, 0, self.describe),
            Api(51, "AlterUserScramCredentials", 0, 0, self.alter, forwarded=True),
        ]

    def describe(self, call: Call) -> Slices[Any]:
        if not may(self.broker.authorizer, call, DESCRIBE, CLUSTER):
            return call.answer(
                error_code=ErrorCode.cluster_authorization_failed,
                error_message="Cluster authorization failed.",
                results=(),
            )
        scram = self.broker.image.scram
        times: dict[str, int] = {}
        for each in call.request.users or ():
            yield
            times[each.name] = times.get(each.name, 0) + 1
        users = times.keys() or (yield from distinct(user for user, _ in list(scram)))
        results = []
        for user in users:
            yield
            error, message = ErrorCode.none, None
            known = {mechanism: scram.get((user, mechanism)) for mechanism in MECHANISMS}
            if not times and not any(known.values()):
                continue  # gone since the last slice
            if times.get(user, 1) > 1:
                error = ErrorCode.duplicate_resource
                message = (
                    f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
                )
            elif not any(known.values()):
                error = ErrorCode.resource_not_found
                message = f"Attempt to describe a user credential that does not exist: {user}"
            infos = (
                call.make("CredentialInfo", mechanism=mechanism, iterations=credential.iterations)
                for mechanism, credential in known.items()
                if credential is not None and error is ErrorCode.none
            )
            results.append(
                call.make(
                    "DescribeUserScramCredentialsResult",
                    user=user,
                    error_code=error,
                    error_message=message,
                    credential_infos=tuple(infos),
                )
            )
        return call.answer(error_code=ErrorCode.none, error_message=None, results=tuple(results))

    async def alter(self, call: Call) -> Any:
        upsertions = await call.in_slices(collect(map(_upsertion, call.request.upsertions)))
        deletions = await call.in_slices(
            collect(ScramGone(each.name, each.mechanism) for each in call.request.deletions)
        )
        try:
            if not may(self.broker.authorizer, call, ALTER, CLUSTER):
                raise KafkaError(ErrorCode.cluster_authorization_failed, "Cluster authorization failed.")
            command = AlterScram(upsertions, deletions)
            replies = await self.broker.controller.submit(command, is_large=call.is_large)
        except KafkaError as error:
            changes: list[Scram | ScramGone] = [*deletions, *upsertions]
            names = await call.in_slices(distinct(change.user for change in changes))
            replies = dict.fromkeys(names, Result(error.code, error.message))
        results = collect(
            call.make(
                "AlterUserScramCredentialsResult",
                user=name,
                error_code=result.error,
                error_message=result.message,
            )
            for name, result in replies.items()
        )
        return call.answer(results=await call.in_slices(results))


def _upsertion(each: Any) -> Scram:
    from millstream.broker.login.credentials import NAMES, from_salted

    salted = bytes(each.salted_password)[:MAX_SALTED]
    salt = bytes(each.salt[:MAX_SALTED])  # a longer one is refused by the controller
    name = NAMES.get(each.mechanism)
    keys = ("", "")
    if name is not None:
        made = from_salted(name, salted, salt, each.iterations)
        keys = (made.stored_key.hex(), made.server_key.hex())
    return Scram(each.name, each.mechanism, salt.hex(), *keys, each.iterations)
