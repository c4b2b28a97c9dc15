"""`up --brokers N`: the table of services with N brokers and their ZooKeeper.

The first broker keeps its name and its folder, so a folder that held one broker becomes the first of several,
with its data. The others are `broker-2`, `broker-3` and so on. The folder remembers how many there are.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from millstream.up.services import BROKER, SERVICES, Service

FILE = "cluster.json"
LOCAL_METADATA = "millstream-metadata"  # the folder of a broker that is alone
MAX_BROKERS = 32
ZOOKEEPER_PORT, ZOOKEEPER_OFFSET = 2181, 7
FURTHER_BROKERS_OFFSET = 10
FURTHER_METRICS_OFFSET = 60
PARTITION_FOLDER = re.compile(r".+-\d+$")


class CannotChange(Exception):
    """The folder does not fit what was asked for; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Size:
    """`adopts`: the first broker was alone so far, and brings its metadata along before others may join.
    `removed`: brokers that the cluster still expects back."""

    brokers: int = 1
    zookeepers: int = 0
    adopts: bool = False
    removed: tuple[int, ...] = ()


def brokers_wanted(text: str) -> int:
    """What --brokers says: a number, or `auto` for one per core. Raises ValueError."""
    if text == "auto":
        return min(os.cpu_count() or 1, MAX_BROKERS)
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= MAX_BROKERS:
        raise ValueError(f"--brokers {text}: give a number from 1 to {MAX_BROKERS}, or auto")
    return int(text)


def remembered(folder: Path | None) -> Size:
    if folder is None:
        return Size()
    try:
        found = json.loads((folder / FILE).read_text())
        removed = tuple(map(int, found.get("removed", ())))
        return Size(int(found["brokers"]), int(found["zookeepers"]), removed=removed)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return Size()  # whether the folder can be used at all is another question
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CannotChange(f"{folder / FILE} cannot be read: {error}") from error


def remember(folder: Path, size: Size) -> None:
    if size.zookeepers:
        found: dict[str, object] = {"brokers": size.brokers, "zookeepers": size.zookeepers}
        if size.removed:
            found["removed"] = size.removed
        (folder / FILE).write_text(json.dumps(found) + "\n")


def decide(folder: Path | None, brokers: int | None, zookeepers: int | None) -> Size:
    """How many there will be: what was asked for, what the folder remembers, one."""
    before = remembered(folder)
    count = before.brokers if brokers is None else brokers
    if folder is not None and count < before.brokers:
        left = [
            number for number in range(count + 1, before.brokers + 1) if _holds_partitions(folder, number)
        ]
        if left:
            ids = ",".join(map(str, range(1, count + 1)))
            raise CannotChange(
                f"{folder} has {before.brokers} brokers, and broker {left[-1]} holds partitions. Start all, "
                f"move its partitions to brokers {ids} (millstream -p up reassign-partitions --generate "
                f"--broker-list {ids} ..., then --execute), and come back when --verify says it is done"
            )
    if zookeepers is not None and before.zookeepers and zookeepers != before.zookeepers:
        raise CannotChange(
            f"{folder} has {before.zookeepers} ZooKeeper{'s' if before.zookeepers > 1 else ''}; "
            "their number cannot be changed"
        )
    servers = before.zookeepers or zookeepers or 1
    if count == 1 and not before.zookeepers:
        return Size()
    adopts = folder is not None and (folder / BROKER.name / LOCAL_METADATA).is_dir()
    removed = {*before.removed, *range(count + 1, before.brokers + 1)} - set(range(1, count + 1))
    return Size(count, servers, adopts, tuple(sorted(removed)))


def _holds_partitions(folder: Path, number: int) -> bool:
    data = folder / broker_name(number)
    return data.is_dir() and any(
        PARTITION_FOLDER.match(entry.name) and entry.is_dir() for entry in data.iterdir()
    )


def broker_name(number: int) -> str:
    return BROKER.name if number == 1 else f"{BROKER.name}-{number}"


def zookeeper_name(number: int, count: int) -> str:
    return "zookeeper" if count == 1 else f"zookeeper-{number}"


def table(size: Size) -> dict[str, Service]:
    """All services there are, by name."""
    if not size.zookeepers:
        return dict(SERVICES)
    found = [_zookeeper(number, size.zookeepers) for number in range(1, size.zookeepers + 1)]
    needs = tuple(service.name for service in found)
    found += (_broker(number, size, needs) for number in range(1, size.brokers + 1))
    brokers = tuple(broker_name(number) for number in range(1, size.brokers + 1))
    for service in SERVICES.values():
        if service is not BROKER:
            found.append(
                replace(service, needs=(*(name for name in service.needs if name != BROKER.name), *brokers))
            )
    return {service.name: service for service in found}


def _broker(number: int, size: Size, zookeepers: tuple[str, ...]) -> Service:
    factor = str(min(3, size.brokers))
    in_sync = str(max(1, min(2, size.brokers - 1)))
    settings: Mapping[str, str] = {
        **BROKER.settings,
        "broker.id": str(number),
        "broker.rack": f"r{number}",
        "zookeeper.connect": "{zookeepers}",
        "zookeeper.connection.timeout.ms": "60000",
        "default.replication.factor": factor,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "min.insync.replicas": in_sync,
        "transaction.state.log.min.isr": in_sync,
    }
    return replace(
        BROKER,
        name=broker_name(number),
        command="broker",
        what=f"Kafka protocol, broker {number}",
        port=BROKER.port + number - 1,
        offset=BROKER.offset if number == 1 else FURTHER_BROKERS_OFFSET + number - 2,
        metrics_port=BROKER.metrics_port
        if number == 1
        else (9404 + number - 1, FURTHER_METRICS_OFFSET + number),
        settings=settings,
        needs=(*zookeepers, BROKER.name) if size.adopts and number > 1 else zookeepers,
    )


def _zookeeper(number: int, count: int) -> Service:
    settings = {"dataDir": "{data}", "clientPort": "{port}", "clientPortAddress": "{plain_host}"}
    # Half a second: sessions may be short, and an ensemble finds its leader fast.
    settings["tickTime"] = "500"
    if count > 1:
        for other in range(1, count + 1):
            settings[f"server.{other}"] = f"{{zookeeper_server_{other}}}"
    return Service(
        name=zookeeper_name(number, count),
        command="zookeeper",
        title="ZooKeeper" if count == 1 else f"ZooKeeper {number}",
        what="Apache ZooKeeper, for the brokers",
        port=ZOOKEEPER_PORT + number - 1,
        offset=ZOOKEEPER_OFFSET + number - 1,
        settings=settings,
        module="pyspark",
        extra=() if count == 1 else ("--id", str(number)),
    )


def is_broker(name: str) -> bool:
    return name == BROKER.name or name.startswith(f"{BROKER.name}-")


def is_zookeeper(name: str) -> bool:
    return name.partition("-")[0] == "zookeeper"
