"""ensure.explicit.internal.resource.naming: no topic and no store may have a name that was made up.

Such names have numbers in them, which change when the topology does, and then state is left behind. This
setting (KIP-1111) has an application fail instead, with the list of what to name.
"""

from __future__ import annotations

import re

from millstream.streams.errors import TopologyError
from millstream.streams.topology import Topology

EXPLICIT_NAMES = "ensure.explicit.internal.resource.naming"
_MADE = re.compile(r"(.*-)?(KSTREAM|KTABLE|COGROUPKSTREAM)-[A-Z-]+-[0-9]{10}(-.*)?|.*-STATE-STORE-[0-9]{10}")


def check_names(topology: Topology) -> None:
    topics = [name for name in topology.internal if _MADE.fullmatch(name)]
    stores = [
        name for name in topology.stores if name not in topology.global_stores and _MADE.fullmatch(name)
    ]
    if topics or stores:
        listed = [f"topic {name}" for name in topics] + [f"store {name}" for name in stores]
        raise TopologyError(
            f"these have no name of yours: {', '.join(listed)}; "
            "give name=... to groupings, repartitions and joins, and materialized=... to tables"
        )
