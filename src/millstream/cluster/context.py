"""What decisions depend on besides the image: this cluster's defaults, the rules of settings, and chance.

Chance (topic ids, where placement begins) is injected, so that a test or a simulation can repeat a run
exactly.
"""

import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from millstream.cluster.metadata_records import Record
from millstream.wire.errors import ErrorCode, KafkaError

Validator = Callable[[str, str, Mapping[str, str]], None]


def random_topic_id() -> uuid.UUID:
    """A random id whose base64 form, which the tools print, does not begin with a dash."""
    while True:
        topic_id = uuid.uuid4()
        if topic_id.int >> 122 != 62:
            return topic_id


def _accept(scope: str, name: str, values: Mapping[str, str]) -> None:
    """Every setting is fine."""


def _no_lists(scope: str, name: str) -> str | None:
    return None


def _room_enough(partitions: int) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Context:
    """`validate(scope, resource name, all its settings)` raises `InvalidSetting` (or KafkaError) for what is
    wrong.

    `list_default(scope, setting)` is the default of a setting that is a list, which can be appended to, and
    None for any other setting. `no_room_for(partitions)` says why the disks cannot hold so many new ones.
    """

    default_partitions: int = 1
    default_replication_factor: int = 1
    max_partitions: int = 200_000  # of the whole cluster
    min_insync_replicas: int = 1  # where neither the topic nor the cluster-wide default says otherwise
    unclean_elections: bool = False  # likewise
    validate: Validator = _accept
    list_default: Callable[[str, str], str | None] = _no_lists
    no_room_for: Callable[[int], str | None] = _room_enough
    supported_features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    first_features: Mapping[str, int] = field(default_factory=dict)  # finalized when the log is begun
    new_topic_id: Callable[[], uuid.UUID] = random_topic_id
    below: Callable[[int], int] = random.randrange  # a random number from 0 up to, not including, n


class Decision(NamedTuple):
    """Records that go into the log together, and the reply to give when they are there.

    News of a broker may change more partitions than fit into one entry. It `may_be_split`: the partitions
    come first, the broker last, so that whoever finds the work half done hears the same news and ends it.
    """

    records: Sequence[Record]
    reply: object = None
    may_be_split: bool = False


def refuse(code: ErrorCode, message: str) -> Decision:
    return Decision((), KafkaError(code, message))
