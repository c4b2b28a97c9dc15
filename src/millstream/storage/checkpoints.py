"""The small text files: offsets per data folder, the topic id per partition, the identity of a data folder.

    <name>-offset-checkpoint     version 0, count, then `topic partition offset` a line
    partition.metadata           version: 0 / topic_id: <id>
    meta.properties              version=1, cluster.id, node.id, directory.id
    .kafka_cleanshutdown         {"version":0,"brokerEpoch":n}: end of a clean stop, removed by the next start
    .boot-id                     the kernel's boot id at the last start (ours; Kafka ignores it)

All are replaced by writing beside and renaming. Ids are UUIDs in Kafka's spelling: url-safe base64, 22
characters.
"""

from __future__ import annotations

import os
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID, uuid4

from millstream.storage.files import read_small, replace_file, sync_path
from millstream.wire.topic_partition import TopicPartition

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANED_OFFSETS = "cleaner-offset-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
BOOT_ID = ".boot-id"

Offsets = dict[TopicPartition, int]


class FormatError(Exception):
    """A file in a data folder is of an unknown version, or not what its name promises."""


# -- ids -----------------------------------------------------------------------------------------------------


def spell_id(value: UUID) -> str:
    return urlsafe_b64encode(value.bytes)[:22].decode()


def parse_id(text: str) -> UUID:
    data = urlsafe_b64decode(text + "==")
    if len(text) != 22 or len(data) != 16:
        raise ValueError(f"not an id: {text!r}")
    return UUID(bytes=data)


def random_id() -> UUID:
    """Never one that begins with a dash, which a command line would take for an option."""
    while True:
        value = uuid4()
        if not spell_id(value).startswith("-"):
            return value


# -- offsets -------------------------------------------------------------------------------------------------


def write_offsets(folder: str, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    lines = [f"{topic} {partition} {offset}\n" for (topic, partition), offset in offsets.items()]
    replace_file(os.path.join(folder, name), f"0\n{len(lines)}\n{''.join(lines)}".encode())


def read_offsets(folder: str, name: str) -> Offsets:
    """Empty if there is no such file. FormatError if there is one that nobody can read."""
    path = os.path.join(folder, name)
    try:
        with open(path, "rb") as file:
            lines = file.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return {}
    if not lines:
        return {}
    try:
        version, count = int(lines[0]), int(lines[1])
        if version != 0:
            raise FormatError(f"{path} is of version {version}, written by a newer release")
        offsets: Offsets = {}
        for line in lines[2:]:
            topic, partition, offset = line.split()
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        if len(lines) - 2 != count:
            raise FormatError(f"{path} promises {count} lines and has {len(lines) - 2}")
    except (ValueError, IndexError) as error:
        raise FormatError(f"{path} is damaged: {error}") from error
    return offsets


# -- partition.metadata --------------------------------------------------------------------------------------


def write_topic_id(folder: str, topic_id: UUID, sync: bool = True) -> None:
    content = f"version: 0\ntopic_id: {spell_id(topic_id)}"
    replace_file(os.path.join(folder, PARTITION_METADATA), content.encode(), sync)


def read_topic_id(folder: str) -> UUID | None:
    path = os.path.join(folder, PARTITION_METADATA)
    try:
        lines = read_small(path).decode().splitlines()
        pairs = dict(line.split(": ", 1) for line in lines if line.strip())
        if int(pairs["version"]) != 0:
            raise FormatError(f"{path} is of version {pairs['version']}, written by a newer release")
        return parse_id(pairs["topic_id"].strip())
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as error:
        raise FormatError(f"{path} is damaged: {error}") from error


# -- meta.properties -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MetaProperties:
    cluster_id: str
    node_id: int
    directory_id: str


def write_meta(folder: str, meta: MetaProperties) -> None:
    content = (
        f"#\n#{time.strftime('%a %b %d %H:%M:%S UTC %Y', time.gmtime())}\n"
        f"cluster.id={meta.cluster_id}\ndirectory.id={meta.directory_id}\nnode.id={meta.node_id}\nversion=1\n"
    )
    replace_file(os.path.join(folder, META_PROPERTIES), content.encode())


def read_meta(folder: str) -> MetaProperties | None:
    """None for a fresh folder. FormatError for an unknown version: better not to start than to misread."""
    path = os.path.join(folder, META_PROPERTIES)
    try:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    pairs: dict[str, str] = {}
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith(("#", "!")):
            name, _, value = line.partition("=")
            pairs[name.strip()] = value.strip()
    version = pairs.get("version", "")
    if version not in ("0", "1"):
        raise FormatError(f"{path} is of version {version or 'unknown'}; this release reads versions 0 and 1")
    try:
        node_id = int(pairs.get("node.id") or pairs["broker.id"])
        directory_id = pairs.get("directory.id") or spell_id(random_id())
        return MetaProperties(pairs["cluster.id"], node_id, directory_id)
    except (KeyError, ValueError) as error:
        raise FormatError(f"{path} is damaged: {error}") from error


# -- how the last run ended ----------------------------------------------------------------------------------


def write_clean_marker(folder: str, broker_epoch: int = -1) -> None:
    content = '{"version":0,"brokerEpoch":%d}' % broker_epoch  # noqa: UP031 - braces read badly in an f-string
    replace_file(os.path.join(folder, CLEAN_SHUTDOWN), content.encode())


def take_clean_marker(folder: str) -> bool:
    """Was the last stop a clean one? The marker is gone afterwards, so that a crash from now on is seen as
    one."""
    try:
        os.unlink(os.path.join(folder, CLEAN_SHUTDOWN))
    except FileNotFoundError:
        return False
    sync_path(folder)
    return True


def current_boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def same_boot(folder: str) -> bool:
    """Has the machine been up since the last start? Then what was written is still in the page cache."""
    now = current_boot_id()
    try:
        with open(os.path.join(folder, BOOT_ID)) as file:
            return bool(now) and file.read().strip() == now
    except OSError:
        return False


def write_boot_id(folder: str) -> None:
    if same_boot(folder):
        return
    replace_file(os.path.join(folder, BOOT_ID), current_boot_id().encode())
