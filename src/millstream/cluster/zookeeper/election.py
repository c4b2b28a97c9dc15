"""Who should lead: whoever holds the ephemeral node /controller.

The node is a hint. Two brokers that both believe to hold it would compete for positions of the log, and the
log knows one winner for each; so a node may be deleted on suspicion (`depose`), and the worst that comes of
it is one more election. To keep even that rare, every creation of the node also raises the version of
/elections, and a deletion is bound to the version under which the node was read: it never hits a successor.
Whoever accuses a broker names its epoch, so that a broker which is back at once is not blamed for its earlier
life.
"""

from collections.abc import Callable

from millstream.cluster.zookeeper.client import Client, Node
from millstream.cluster.zookeeper.layout import BROKERS, CONTROLLER, ELECTIONS
from millstream.cluster.zookeeper.protocol import (
    EPHEMERAL,
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    SetData,
)

NOBODY = -1  # campaigns without being registered


async def win(client: Client, broker_id: int | None, watch: Callable[[], None]) -> bool:
    """Whether the node is ours now. Where it is another's, the watch tells of its end."""
    content = str(NOBODY if broker_id is None else broker_id).encode()
    while True:
        election = await _count(client)
        session = await client.session()
        failed = await client.multi(
            [SetData(ELECTIONS, b"", election), Create(CONTROLLER, content, EPHEMERAL)]
        )
        if failed is None:
            return True
        if isinstance(failed.error, BadVersion):
            continue
        if not isinstance(failed.error, NodeExists):
            raise failed.error
        try:
            node = await client.get(CONTROLLER, watch)
        except NoNode:
            continue
        if node.stat.ephemeral_owner == session.id:
            return True
        if broker_id is None or node.data != content:
            return False
        # We are the one registered under this id, so an earlier session of ours has left this.
        await _delete_leftover(client, content, session.id)


async def depose(client: Client, broker_id: int, epoch: int) -> None:
    """Deletes the node if it names this broker, unless a later life of the broker has made it."""
    election = await _count(client)  # before anything is looked at: a campaign meanwhile undoes the deletion
    node = await _leader(client)
    if node is None or node.data != str(broker_id).encode():
        return
    if node.stat.ephemeral_owner != await _session_of_later_life(client, broker_id, epoch):
        await client.multi([Check(ELECTIONS, election), Delete(CONTROLLER)])


async def _session_of_later_life(client: Client, broker_id: int, epoch: int) -> int:
    """0 if the broker has not registered since."""
    try:
        node = await client.get(f"{BROKERS}/{broker_id}")
    except NoNode:
        return 0
    return node.stat.ephemeral_owner if node.stat.czxid > epoch else 0


async def _delete_leftover(client: Client, content: bytes, session_id: int) -> None:
    election = await _count(client)
    node = await _leader(client)
    if node is not None and node.data == content and node.stat.ephemeral_owner != session_id:
        await client.multi([Check(ELECTIONS, election), Delete(CONTROLLER)])


async def _leader(client: Client) -> Node | None:
    try:
        return await client.get(CONTROLLER)
    except NoNode:
        return None


async def _count(client: Client) -> int:
    stat = await client.exists(ELECTIONS)
    if stat is None:
        raise NoNode(ELECTIONS)
    return stat.version
