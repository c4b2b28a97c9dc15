"""Who should lead: whoever holds the ephemeral node /controller.

The node is a hint. Two brokers that both believe to hold it would compete for positions of the log, and the
log knows one winner for each; so a node may be deleted on suspicion (`depose`), and the worst that comes of
it is one more election. To keep even that rare, every creation of the node also raises the version of
/elections, and a deletion is bound to the version under which the node was read: it never hits a successor.
"""

from collections.abc import Callable

from millstream.cluster.zookeeper.client import Client
from millstream.cluster.zookeeper.layout import CONTROLLER, ELECTIONS
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
        await depose(client, broker_id, but=session.id)


async def depose(client: Client, broker_id: int, but: int = 0) -> None:
    """Deletes the node if it names this broker, unless it belongs to the session `but`."""
    election = await _count(client)
    try:
        node = await client.get(CONTROLLER)
    except NoNode:
        return
    if node.data == str(broker_id).encode() and node.stat.ephemeral_owner != but:
        await client.multi([Check(ELECTIONS, election), Delete(CONTROLLER)])


async def _count(client: Client) -> int:
    stat = await client.exists(ELECTIONS)
    if stat is None:
        raise NoNode(ELECTIONS)
    return stat.version
