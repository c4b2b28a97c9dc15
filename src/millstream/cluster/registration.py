"""What a broker says of itself when it joins, and its bytes in the store."""

import json
from dataclasses import dataclass, field

from millstream.cluster.commands import RegisterBroker
from millstream.cluster.metadata_records import Endpoint, UnknownMetadata
from millstream.cluster.store import Member

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Registration:
    """`incarnation` is new for each start of the process; `features` are the levels it supports, (lowest,
    highest)."""

    incarnation: str
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    features: dict[str, tuple[int, int]] = field(default_factory=dict)
    draining: bool = False
    lost_data: bool = False

    def encode(self) -> bytes:
        return json.dumps(
            {
                "v": _FORMAT,
                "incarnation": self.incarnation,
                "endpoints": [
                    [endpoint.listener, endpoint.host, endpoint.port, endpoint.security_protocol]
                    for endpoint in self.endpoints
                ],
                "rack": self.rack,
                "features": self.features,
                "draining": self.draining,
                "lost_data": self.lost_data,
            }
        ).encode()


def command_for(member: Member) -> RegisterBroker:
    """What a member tells the controller about itself."""
    try:
        data = json.loads(member.data)
        if data["v"] != _FORMAT:
            raise ValueError(f"format {data['v']}")
        return RegisterBroker(
            member.broker_id,
            member.epoch,
            data["incarnation"],
            tuple(Endpoint(*endpoint) for endpoint in data["endpoints"]),
            data["rack"],
            {name: (low, high) for name, (low, high) in data["features"].items()},
            data["draining"],
            data["lost_data"],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise UnknownMetadata(
            f"broker {member.broker_id} registered in a way that this version cannot read: {problem!r}"
        ) from problem
