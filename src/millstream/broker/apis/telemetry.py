"""Metrics of clients: GetTelemetrySubscriptions 0, PushTelemetry 0 (KIP-714).

Served and listed where there is a page to show them on, `millstream.metrics.listener`: the broker's own
receiver, in the place of Kafka's plug-ins. Without one clients are not asked. No ACL is needed for
either, as in Kafka; who may subscribe is a matter of `configs`.

What a push holds is decompressed and read by a thread, within limits: a few compressed bytes can claim
gigabytes. What cannot be read is INVALID_RECORD. `broker/telemetry` has the rules.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from millstream.broker.network.dispatch import Api, Call
from millstream.broker.telemetry.instances import ACCEPTED_COMPRESSION, instance_name
from millstream.broker.telemetry.series import read_push
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.varint import Malformed

if TYPE_CHECKING:
    from millstream.broker.network.dispatch import Dispatcher
    from millstream.broker.telemetry.manager import Telemetry

logger = logging.getLogger("millstream.telemetry")

UNKNOWN = "unknown"  # software of a client that did not say, as in Kafka


class TelemetryApi:
    def __init__(self, telemetry: Telemetry, dispatcher: Dispatcher) -> None:
        self._telemetry = telemetry
        self._dispatcher = dispatcher

    def apis(self) -> list[Api]:
        return [
            Api(71, "GetTelemetrySubscriptions", 0, 0, self.get_telemetry_subscriptions),
            Api(72, "PushTelemetry", 0, 0, self.push_telemetry),
        ]

    def get_telemetry_subscriptions(self, call: Call) -> Any:
        instances = self._telemetry.instances
        try:
            found = instances.get(call.request.client_instance_id, _attributes(call), call.connection)
        except KafkaError as error:
            return self._subscriptions(call, error.code)
        return self._subscriptions(
            call,
            ErrorCode.none,
            client_instance_id=found.id,
            subscription_id=found.subscription_id,
            accepted_compression_types=ACCEPTED_COMPRESSION,
            push_interval=timedelta(milliseconds=found.interval_ms),
            telemetry_max_bytes=self._telemetry.max_bytes,
            delta_temporality=True,
            requested_metrics=found.metrics,
        )

    def _subscriptions(self, call: Call, error: ErrorCode, **fields: Any) -> Any:
        nothing = {
            "client_instance_id": None,
            "subscription_id": 0,
            "accepted_compression_types": (),
            "push_interval": timedelta(0),
            "telemetry_max_bytes": 0,
            "delta_temporality": False,
            "requested_metrics": (),
        }
        return call.answer(throttle_time=timedelta(0), error_code=error, **{**nothing, **fields})

    async def push_telemetry(self, call: Call) -> Any:
        return call.answer(throttle_time=timedelta(0), error_code=await self._push(call))

    async def _push(self, call: Call) -> ErrorCode:
        request, telemetry = call.request, self._telemetry
        try:
            instance = telemetry.instances.push(
                request.client_instance_id,
                _attributes(call),
                call.connection,
                subscription_id=request.subscription_id,
                terminating=request.terminating,
                compression=request.compression_type,
                size=len(request.metrics),
                max_bytes=telemetry.max_bytes,
            )
        except KafkaError as error:
            return error.code
        if not request.metrics:
            return ErrorCode.none
        try:
            pushed = await self._dispatcher.in_thread(
                read_push,
                request.metrics,
                request.compression_type,
                telemetry.max_decompressed,
                instance,
                call.principal,
            )
        except (KafkaError, Malformed, IndexError) as error:
            telemetry.series.refused += 1
            instance.last_error = ErrorCode.invalid_record
            logger.info("metrics of client %s cannot be read: %s", instance_name(instance.id), error)
            return ErrorCode.invalid_record
        telemetry.series.take(instance, pushed)
        return ErrorCode.none


def _attributes(call: Call) -> dict[str, str]:
    """What the selectors of a subscription look at, but for the instance's id."""
    connection = call.connection
    software, _, version = connection.software.partition("/")
    return {
        "client_id": connection.client_id[:256],
        "client_software_name": software[:256] or UNKNOWN,
        "client_software_version": version[:256] or UNKNOWN,
        "client_source_address": connection.client_host,
        "client_source_port": connection.peer.rpartition(":")[2],
    }
