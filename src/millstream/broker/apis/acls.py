"""DescribeAcls, CreateAcls and DeleteAcls 1-3.

     1  resources by prefix (KIP-290)
     2  flexible
     3  resources of type USER, for delegation tokens (KIP-373)

ACLs are records of the metadata log; a change counts on every connection before it is answered. Without
`authorizer.class.name` whoever asks for ACLs gets SECURITY_DISABLED, as from a Kafka broker: no rule is
stored that nobody would check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.broker.authorizer import ALTER, CLUSTER, DESCRIBE, may
from millstream.broker.network.dispatch import Api, Call
from millstream.broker.network.slices import Slices, collect
from millstream.cluster.commands import Result
from millstream.cluster.security_commands import AclsDeleted, CreateAcls, DeleteAcls
from millstream.wire.acls import AclBinding, AclFilter
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.server import Broker

HELD_IN_LOOP = 5000  # ACLs that filters are held against: some milliseconds
_DISABLED = Result(ErrorCode.security_disabled, "No Authorizer is configured.")
_DENIED = Result(ErrorCode.cluster_authorization_failed, "Cluster authorization failed.")


class AclsApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def apis(self) -> list[Api]:
        return [
            Api(29, "DescribeAcls", 1, 3, self.describe),
            Api(30, "CreateAcls", 1, 3, self.create, forwarded=True),
            Api(31, "DeleteAcls", 1, 3, self.delete, forwarded=True),
        ]

    def _refused(self, call: Call) -> Result | None:
        if self.broker.authorizer is None:
            return _DISABLED
        operation = DESCRIBE if call.codec.api == 29 else ALTER
        return None if may(self.broker.authorizer, call, operation, CLUSTER) else _DENIED

    # ------------------------------------------------------------------ DescribeAcls

    def describe(self, call: Call) -> Slices[Any]:
        refused = self._refused(call)
        if refused is not None:
            return call.answer(resources=(), error_code=refused.error, error_message=refused.message)
        wanted = _filter(call.request)
        found: dict[tuple[int, str, int], list[AclBinding]] = {}
        for acl in list(self.broker.image.acls):
            if wanted.matches(acl):
                found.setdefault((acl.resource_type, acl.name, acl.pattern_type), []).append(acl)
            yield
        resources = []
        for (resource_type, name, pattern_type), acls in found.items():
            descriptions = yield from collect(
                call.make(
                    "AclDescription",
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
                for acl in acls
            )
            resources.append(
                call.make(
                    "DescribeAclsResource",
                    resource_type=resource_type,
                    resource_name=name,
                    pattern_type=pattern_type,
                    acls=descriptions,
                )
            )
        return call.answer(resources=tuple(resources), error_code=ErrorCode.none, error_message=None)

    # ------------------------------------------------------------------ CreateAcls

    async def create(self, call: Call) -> Any:
        creations = call.request.creations
        refused = self._refused(call)
        results = []
        if refused is None:
            bindings = await call.in_slices(
                collect(
                    AclBinding(
                        each.resource_type,
                        each.resource_name,
                        each.resource_pattern_type,
                        each.principal,
                        each.host,
                        each.operation,
                        each.permission_type,
                    )
                    for each in creations
                )
            )
            try:
                results = await self.broker.controller.submit(CreateAcls(bindings), is_large=call.is_large)
            except KafkaError as error:
                refused = Result(error.code, error.message)
        if refused is not None:
            results = [refused] * len(creations)
        made = await call.in_slices(
            collect(
                call.make("AclCreationResult", error_code=result.error, error_message=result.message)
                for result in results
            )
        )
        return call.answer(results=made)

    # ------------------------------------------------------------------ DeleteAcls

    async def delete(self, call: Call) -> Any:
        filters = call.request.filters
        refused = self._refused(call)
        results: list[AclsDeleted] = []
        if refused is None:
            wanted = await call.in_slices(collect(_filter(each) for each in filters))
            try:
                # A short request, but each filter may be held against all ACLs.
                long = len(wanted) * len(self.broker.image.acls) > HELD_IN_LOOP
                results = await self.broker.controller.submit(
                    DeleteAcls(wanted), is_large=call.is_large or long
                )
                call.is_large |= long
            except KafkaError as error:
                refused = Result(error.code, error.message)
        if refused is not None:
            results = [AclsDeleted((), refused.error, refused.message)] * len(filters)
        made = await call.in_slices(self._all_deleted(call, results))
        return call.answer(filter_results=made)

    def _all_deleted(self, call: Call, results: list[AclsDeleted]) -> Slices[tuple[Any, ...]]:
        made = []
        for result in results:
            matching = yield from collect(
                call.make(
                    "DeleteAclsMatchingAcl",
                    error_code=ErrorCode.none,
                    error_message=None,
                    resource_type=acl.resource_type,
                    resource_name=acl.name,
                    pattern_type=acl.pattern_type,
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
                for acl in result.deleted
            )
            made.append(
                call.make(
                    "DeleteAclsFilterResult",
                    error_code=result.error,
                    error_message=result.message,
                    matching_acls=matching,
                )
            )
            yield
        return tuple(made)


def _filter(each: Any) -> AclFilter:
    return AclFilter(
        each.resource_type_filter,
        each.resource_name_filter,
        each.pattern_type_filter,
        each.principal_filter,
        each.host_filter,
        each.operation,
        each.permission_type,
    )
