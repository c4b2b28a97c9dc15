"""ApiVersions 0-4: which versions of which APIs this broker serves.

     1  throttle time
     2  the client expects to be throttled after the response (KIP-219)
     3  flexible; name and version of the client's software (KIP-511), feature levels (KIP-584)
     4  features whose lowest level is 0 (KAFKA-17011)

A client whose version is not known gets a version 0 response with UNSUPPORTED_VERSION and the versions of
ApiVersions itself, and can ask again (KIP-511). An API is listed only if it works.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from millstream.broker.network.dispatch import Api, Call
from millstream.wire.errors import ErrorCode
from millstream.wire.messages import API_VERSIONS

if TYPE_CHECKING:
    from millstream.broker.server import Broker

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

# What this broker understands of each feature: lowest and highest level. Eligible leader replicas (KIP-966)
# are always kept, so their feature has no level 0.
SUPPORTED_FEATURES = {
    "metadata.version": (7, 29),
    "transaction.version": (0, 2),
    "group.version": (0, 1),
    "eligible.leader.replicas.version": (1, 1),
}

FIRST_WITH_LEVEL_0 = 4


class ApiVersionsApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        # Packed responses, valid for one version of the metadata.
        self._packed: dict[tuple[int, ErrorCode], bytes] = {}
        self._packed_for = -1

    def apis(self) -> list[Api]:
        return [Api(18, "ApiVersions", 0, 4, self.api_versions)]

    def api_versions(self, call: Call) -> Any:
        request = call.request
        error = ErrorCode.none
        if request is None:
            error = ErrorCode.unsupported_version
        elif call.version >= 3:
            name, version = request.client_software_name, request.client_software_version
            if _SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version):
                call.connection.software = f"{name}/{version}"
            else:
                error = ErrorCode.invalid_request
        if self._packed_for != self.broker.image.version:
            self._packed_for = self.broker.image.version
            self._packed.clear()
        key = (call.version, error)
        packed = self._packed.get(key)
        if packed is None:
            packed = self._packed[key] = call.codec.body(self._answer(call, error))
        return call.codec.pack(call.correlation_id, packed)

    def _answer(self, call: Call, error: ErrorCode) -> Any:
        table = self.broker.dispatcher.apis
        if error is ErrorCode.none:
            shown = sorted(key for key, api in table.items() if not api.between_brokers)
        else:
            shown = [API_VERSIONS] if error is ErrorCode.unsupported_version else []
        served = []
        for key in shown:
            api = table[key]
            lowest = api.advertised_from if api.advertised_from >= 0 else api.lowest
            served.append(call.make("ApiVersion", api_key=key, min_version=lowest, max_version=api.highest))
        if call.version < 3:
            return call.answer(error_code=error, api_keys=tuple(served))
        image = self.broker.image
        return call.answer(
            error_code=error,
            api_keys=tuple(served),
            supported_features=tuple(
                call.make("SupportedFeatureKey", name=name, min_version=low, max_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
                if low > 0 or call.version >= FIRST_WITH_LEVEL_0
            ),
            finalized_features_epoch=image.version,
            finalized_features=tuple(
                call.make("FinalizedFeatureKey", name=name, max_version_level=level, min_version_level=level)
                for name, level in sorted(image.features.items())
            ),
        )
