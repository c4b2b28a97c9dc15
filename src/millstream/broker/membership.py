"""How a broker with `zookeeper.connect` becomes one of several: who it is, and where its metadata lies.

ZooKeeper knows the cluster's id; the first broker writes it. A data folder belongs to one cluster and one
broker for ever. A broker without an id takes over that of its folder, or is given the next one.

A folder that held a broker of its own brings its metadata along: if the cluster is new, what the local store
holds becomes the first snapshot in ZooKeeper, without the brokers, who register anew.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import NamedTuple

from millstream.cluster.local_store import LocalStore
from millstream.cluster.metadata_records import BrokerDown, BrokerUp, encode_chunks
from millstream.cluster.offline import load_image
from millstream.cluster.store import MetadataStore, StoreError, Unavailable
from millstream.cluster.zookeeper.client import Client
from millstream.cluster.zookeeper.connect_string import parse_connect_string
from millstream.cluster.zookeeper.protocol import ZooKeeperError
from millstream.cluster.zookeeper.store import ZooKeeperStore
from millstream.settings.resolve import BrokerSettings
from millstream.settings.values import InvalidSetting
from millstream.storage import checkpoints
from millstream.storage.log_dirs import LogDirError, LogDirs

logger = logging.getLogger("millstream.broker")

MIGRATED = ".in-zookeeper"  # behind the name of the local store's folder, once its content is in ZooKeeper


class Identity(NamedTuple):
    client: Client
    node_id: int
    cluster_id: str


def client_for(settings: BrokerSettings) -> Client:
    """Raises InvalidSetting."""
    name = "zookeeper.connect"
    text = settings.string(name)
    try:
        connect = parse_connect_string(text)
    except ValueError as problem:
        raise InvalidSetting(name, text, str(problem), f"{name} is '{text}': {problem}") from None
    digest = settings.text("millstream.zookeeper.digest") or ""
    set_acl = settings.boolean("zookeeper.set.acl")
    if set_acl and not digest:
        raise InvalidSetting(
            "zookeeper.set.acl",
            "true",
            "needs millstream.zookeeper.digest",
            "zookeeper.set.acl needs a user: set millstream.zookeeper.digest=user:password",
        )
    context = None
    if settings.boolean("zookeeper.ssl.client.enable"):
        from millstream.broker.tls.stores import zookeeper_context

        context = zookeeper_context(settings)
    return Client(
        connect,
        session_timeout=settings.integer("zookeeper.session.timeout.ms") / 1000,
        credentials=[("digest", digest.encode())] if digest else (),
        set_acl=set_acl,
        ssl=context,
    )


async def meet(settings: BrokerSettings) -> Identity:
    """Connects to ZooKeeper and finds out who this broker is. Raises StoreError, LogDirError or
    InvalidSetting."""
    client = client_for(settings)
    name = "zookeeper.connection.timeout.ms"
    if not settings.is_set(name):
        name = "zookeeper.session.timeout.ms"
    patience = settings.integer(name) / 1000
    logger.info("connecting to ZooKeeper at %s, for up to %g s (%s)", client.connect, patience, name)
    try:
        await client.start(patience)
        try:
            found = [meta for path in settings.log_dirs if (meta := checkpoints.read_meta(path))]
            cluster_id = await _cluster_id(client, {meta.cluster_id for meta in found})
            node_id = await _node_id(client, settings, {meta.node_id for meta in found})
        except BaseException:
            await client.close()
            raise
    except ZooKeeperError as problem:
        raise Unavailable(str(problem)) from problem
    return Identity(client, node_id, cluster_id)


async def _cluster_id(client: Client, of_folders: set[str]) -> str:
    from millstream.cluster.zookeeper.cluster_node import cluster_id

    found = await cluster_id(
        client, min(of_folders) if of_folders else checkpoints.spell_id(checkpoints.random_id())
    )
    if of_folders - {found}:
        raise LogDirError(
            f"the data folder belongs to cluster {min(of_folders - {found})}, and ZooKeeper at "
            f"{client.connect} to cluster {found}; use another folder, or another path in zookeeper.connect"
        )
    return found


async def _node_id(client: Client, settings: BrokerSettings, of_folders: set[int]) -> int:
    if settings.is_set("node.id"):
        return settings.node_id
    if of_folders:
        return min(of_folders)
    if not settings.boolean("broker.id.generation.enable"):
        raise LogDirError("this broker has no id: set broker.id, or broker.id.generation.enable=true")
    from millstream.cluster.zookeeper.cluster_node import next_broker_id

    return settings.integer("reserved.broker.max.id") + await next_broker_id(client)


async def open_store(client: Client, log_dirs: LogDirs, local_folder: str) -> MetadataStore:
    """The store in ZooKeeper, with what the folder's own store held if the cluster is new."""
    try:
        directory_id = log_dirs.meta[log_dirs.paths[0]].directory_id
        store = await ZooKeeperStore.open(client, directory_id, log_dirs.inode())
    except ZooKeeperError as problem:
        raise Unavailable(str(problem)) from problem
    if os.path.isdir(local_folder):
        await _bring_along(store, local_folder)
    return store


async def _bring_along(store: ZooKeeperStore, folder: str) -> None:
    from pathlib import Path

    local = await LocalStore.open(Path(folder))
    try:
        image = await load_image(local)
    finally:
        await local.close()
    version, _ = await store.snapshot()
    if version == 0 and not await store.read(0, 1):
        records = [record for record in image.records() if not isinstance(record, BrokerUp | BrokerDown)]
        await store.begin_with(max(image.version, 1), _chunks(records))
        logger.info("the metadata of %s is in ZooKeeper now: %d records", folder, len(records))
    elif version == 0 or version < image.version:
        # It was copied by an earlier start, which ended before the folder had its new name; or else these
        # are two clusters with one id.
        raise StoreError(
            f"{folder} holds metadata of this cluster that is not in ZooKeeper; was ZooKeeper emptied?"
        )
    os.rename(folder, folder + MIGRATED)


def _chunks(records: Sequence[object]) -> list[bytes]:
    return list(encode_chunks(records))  # type: ignore[arg-type]
