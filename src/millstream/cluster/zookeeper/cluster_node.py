"""What ZooKeeper knows of the cluster as a whole: its id, and the numbers that were given to brokers."""

import json

from millstream.cluster.store import StoreError
from millstream.cluster.zookeeper.client import Client
from millstream.cluster.zookeeper.layout import BROKER_IDS, CLUSTER, FORMAT
from millstream.cluster.zookeeper.protocol import NodeExists, NoNode


async def cluster_id(client: Client, proposal: str = "") -> str:
    """The cluster's id; the proposal if there is none yet. Without a proposal, "" if there is none."""
    while True:
        try:
            node = await client.get(CLUSTER)
        except NoNode:
            if not proposal:
                return ""
            await client.ensure("")
            data = json.dumps({"format": FORMAT, "cluster_id": proposal}).encode()
            try:
                await client.create(CLUSTER, data)
            except NodeExists:
                continue
            return proposal
        try:
            found = json.loads(node.data)
            if found["format"] != FORMAT:
                raise ValueError(f"format {found['format']}, this version knows {FORMAT}")
            return str(found["cluster_id"])
        except (ValueError, KeyError, TypeError) as problem:
            raise StoreError(f"{CLUSTER} in ZooKeeper cannot be read: {problem!r}") from problem


async def next_broker_id(client: Client) -> int:
    """1, 2, 3, ..., each once; the version of a node counts how often it was written."""
    await client.ensure(BROKER_IDS)
    return (await client.set(BROKER_IDS, b"")).version
