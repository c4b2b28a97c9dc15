"""DescribeAcls, CreateAcls and DeleteAcls 1-3.

     1  resources by prefix (KIP-290)
     2  flexible
     3  resources of type USER, for delegation tokens (KIP-373)

Left out: an authorizer. Every client may do everything, and whoever asks for ACLs gets SECURITY_DISABLED, as
from a Kafka broker without an authorizer; no rule is stored that nobody would check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.broker.network.dispatch import Api, Call
from millstream.broker.network.slices import Slices, collect
from millstream.wire.errors import ErrorCode

if TYPE_CHECKING:
    from millstream.broker.server import Broker

_REFUSED = {"error_code": ErrorCode.security_disabled, "error_message": "No Authorizer is configured."}


class AclsApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def apis(self) -> list[Api]:
        return [
            Api(29, "DescribeAcls", 1, 3, self.describe),
            Api(30, "CreateAcls", 1, 3, self.create),
            Api(31, "DeleteAcls", 1, 3, self.delete),
        ]

    def describe(self, call: Call) -> Any:
        return call.answer(resources=(), **_REFUSED)

    def create(self, call: Call) -> Slices[Any]:
        results = yield from collect(
            call.make("AclCreationResult", **_REFUSED) for _ in call.request.creations
        )
        return call.answer(results=results)

    def delete(self, call: Call) -> Slices[Any]:
        results = yield from collect(
            call.make("DeleteAclsFilterResult", matching_acls=(), **_REFUSED) for _ in call.request.filters
        )
        return call.answer(filter_results=results)
