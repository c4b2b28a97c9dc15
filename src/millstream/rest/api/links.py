"""Resources of version 3: what they are called, where they are found, and how they are described."""

from collections.abc import Sequence
from typing import Any

from fastapi import Request

from millstream.rest.api.responses import base_url, service_of, url

Json = dict[str, Any]


class Links:
    """Addresses and names inside of one cluster."""

    def __init__(self, request: Request, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self._base = url(base_url(request), "v3", "clusters")
        authority = service_of(request).config.value("confluent.resource.name.authority")
        self._crn = f"crn://{str(authority).strip('/')}"

    def url(self, *segments: object) -> str:
        return url(self._base, self.cluster_id, *segments)

    def related(self, *segments: object) -> Json:
        return {"related": self.url(*segments)}

    def crn(self, *pairs: tuple[str, object] | str) -> str:
        parts = [one if isinstance(one, str) else f"{one[0]}={one[1]}" for one in pairs]
        return "/".join((self._crn, f"kafka={self.cluster_id}", *parts))

    def resource(
        self, kind: str, segments: Sequence[object], names: Sequence[tuple[str, object] | str], **fields: Any
    ) -> Json:
        metadata = {"self": self.url(*segments), "resource_name": self.crn(*names)}
        return {"kind": kind, "metadata": metadata, "cluster_id": self.cluster_id, **fields}

    def collection(self, kind: str, segments: Sequence[object], data: Sequence[Json]) -> Json:
        metadata = {"self": self.url(*segments), "next": None}
        return {"kind": kind, "metadata": metadata, "data": list(data)}


async def links(request: Request) -> Links:
    """For the cluster in the path; 404 if it is not the one behind this proxy."""
    cluster_id = await service_of(request).kafka.check_cluster(request.path_params["cluster_id"])
    return Links(request, cluster_id)
