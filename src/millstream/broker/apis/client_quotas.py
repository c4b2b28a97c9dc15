"""DescribeClientQuotas and AlterClientQuotas 0-1 (KIP-546).

     1  flexible

An entity is a user, a client id, both, or an address; null stands for the default of all that have no quota
of their own. What quotas do is in `broker.quotas`.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from millstream.broker.authorizer import ALTER_CONFIGS, CLUSTER, DESCRIBE_CONFIGS, may
from millstream.broker.network.dispatch import Api, Call
from millstream.broker.network.slices import Slices, collect
from millstream.cluster.commands import Result
from millstream.cluster.security import ENTITY_TYPES
from millstream.cluster.security_commands import AlterQuotas, QuotaChange
from millstream.cluster.security_records import QuotaEntity
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.server import Broker

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
# Of an entity and of its changes. More cannot be right: something would be named twice, or be unknown.
MAX_PARTS, MAX_OPERATIONS = 4, 64
LOOK_UP = 5.0  # seconds for one name
MAX_LOOK_UPS = 100  # names of one request; those behind count as unknown
EntityPart = tuple[str, str | None]
_DENIED = Result(ErrorCode.cluster_authorization_failed, "Cluster authorization failed.")


class ClientQuotasApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def apis(self) -> list[Api]:
        return [
            Api(48, "DescribeClientQuotas", 0, 1, self.describe),
            Api(49, "AlterClientQuotas", 0, 1, self.alter, forwarded=True),
        ]

    # ------------------------------------------------------------------ DescribeClientQuotas

    def describe(self, call: Call) -> Slices[Any]:
        try:
            if not may(self.broker.authorizer, call, DESCRIBE_CONFIGS, CLUSTER):
                raise KafkaError(_DENIED.error, _DENIED.message or "")
            exact, named = _components(call.request.components)
        except KafkaError as problem:
            return call.answer(error_code=problem.code, error_message=problem.message or None, entries=None)
        count = len(exact) + len(named)
        found = []
        for entity, quota in list(self.broker.image.quotas.items()):
            yield
            parts = dict(entity)
            if (
                (not call.request.strict or len(parts) == count)
                and all(kind in parts and parts[kind] == name for kind, name in exact.items())
                and all(kind in parts for kind in named)
            ):
                found.append(
                    call.make(
                        "EntryData",
                        entity=tuple(
                            call.make("EntityData", entity_type=kind, entity_name=name)
                            for kind, name in entity
                        ),
                        values=tuple(
                            call.make("ValueData", key=key, value=value)
                            for key, value in quota.values.items()
                        ),
                    )
                )
        return call.answer(error_code=ErrorCode.none, error_message=None, entries=tuple(found))

    # ------------------------------------------------------------------ AlterClientQuotas

    async def alter(self, call: Call) -> Any:
        entries = call.request.entries
        refused = None if may(self.broker.authorizer, call, ALTER_CONFIGS, CLUSTER) else _DENIED
        results: list[Result] = []
        if refused is None:
            changes = await call.in_slices(collect(_change(entry) for entry in entries))
            try:
                unknown = await self._unknown_hosts(call, changes)
                kept: Sequence[QuotaChange] = changes
                if unknown:
                    kept = await call.in_slices(_all_but(changes, unknown))
                done = iter(
                    await self.broker.controller.submit(
                        AlterQuotas(kept, call.request.validate_only), is_large=call.is_large
                    )
                )
                results = list(
                    await call.in_slices(
                        collect(_no_host(change, unknown) or next(done) for change in changes)
                    )
                )
            except KafkaError as error:
                refused = Result(error.code, error.message)
        if refused is not None:
            results = [refused] * len(entries)
        made = await call.in_slices(
            collect(
                call.make(
                    "EntryData",
                    error_code=result.error,
                    error_message=result.message,
                    entity=tuple(
                        call.make("EntityData", entity_type=part.entity_type, entity_name=part.entity_name)
                        for part in entry.entity[:MAX_PARTS]
                    ),
                )
                for entry, result in zip(entries, results, strict=True)
            )
        )
        return call.answer(entries=made)

    async def _unknown_hosts(self, call: Call, changes: Sequence[QuotaChange]) -> set[EntityPart]:
        """The parts of entities that name a host nobody knows. Name servers are asked here, not by the
        controller, which waits for nobody, and not for very many names."""
        hosts = await call.in_slices(_host_names(changes))
        loop = asyncio.get_running_loop()
        unknown: set[EntityPart] = set(list(hosts)[MAX_LOOK_UPS:])
        for host in list(hosts)[:MAX_LOOK_UPS]:
            try:
                async with asyncio.timeout(LOOK_UP):
                    await loop.getaddrinfo(host[1], None)
            except (OSError, UnicodeError, TimeoutError):
                unknown.add(host)
        return unknown


def _host_names(changes: Sequence[QuotaChange]) -> Slices[dict[EntityPart, None]]:
    """Those that are no addresses, each once."""
    found: dict[EntityPart, None] = {}
    for change in changes:
        yield
        for part in change.entity:
            if part[0] == "ip" and part[1] and not _is_address(part[1]):
                found[part] = None
    return found


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _all_but(changes: Sequence[QuotaChange], unknown: set[EntityPart]) -> Slices[list[QuotaChange]]:
    kept = []
    for change in changes:
        yield
        if unknown.isdisjoint(change.entity):
            kept.append(change)
    return kept


def _no_host(change: QuotaChange, unknown: set[EntityPart]) -> Result | None:
    for part in change.entity:
        if part in unknown:
            return Result(ErrorCode.invalid_request, f"{part[1]} is not a valid IP or resolvable host.")
    return None


def _change(entry: Any) -> QuotaChange:
    entity: QuotaEntity = tuple(
        sorted(((part.entity_type, part.entity_name) for part in entry.entity[:MAX_PARTS]), key=str)
    )
    return QuotaChange(
        entity, [(each.key, None if each.remove else each.value) for each in entry.ops[:MAX_OPERATIONS]]
    )


def _components(components: Any) -> tuple[dict[str, str | None], set[str]]:
    """What has to be exactly so, and what has to be named at all."""
    exact: dict[str, str | None] = {}
    named: set[str] = set()
    for part in components:
        kind, match_type, match = part.entity_type, part.match_type, part.match
        if not kind:
            raise KafkaError(ErrorCode.invalid_request, "Invalid empty entity type.")
        if kind in exact or kind in named:
            raise KafkaError(
                ErrorCode.invalid_request, f"Entity type {kind} cannot appear more than once in the filter."
            )
        if kind not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.unsupported_version, f"Unsupported entity type {kind}")
        if match_type == EXACT and match is not None:
            exact[kind] = match
        elif match_type == DEFAULT and match is None:
            exact[kind] = None
        elif match_type == SPECIFIED and match is None:
            named.add(kind)
        elif match_type in (EXACT, DEFAULT, SPECIFIED):
            raise KafkaError(
                ErrorCode.invalid_request, "The match string does not go with the match type of the filter."
            )
        else:
            raise KafkaError(ErrorCode.invalid_request, f"Unknown match type {match_type}")
    if "ip" in {*exact, *named} and len(exact) + len(named) > 1:
        raise KafkaError(
            ErrorCode.invalid_request,
            "Invalid entity filter component combination. IP filter component should not be used with user "
            "or clientId filter component.",
        )
    return exact, named
