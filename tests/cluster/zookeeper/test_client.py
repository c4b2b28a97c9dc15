"""The client against a real ZooKeeper, with kazoo as the other opinion, and against servers that are mad."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from millstream.cluster.zookeeper.client import Client
from millstream.cluster.zookeeper.connect_string import ConnectString, parse_connect_string
from millstream.cluster.zookeeper.protocol import (
    EPHEMERAL,
    SEQUENCE,
    AccessDenied,
    BadVersion,
    Check,
    ConnectionLoss,
    Create,
    MalformedResponse,
    NodeExists,
    NoNode,
    NotEmpty,
    Reader,
    set_watches,
)
from tests.support.waiting import wait_until_async
from tests.support.zookeeper import RunningEnsemble, RunningZooKeeper

from .cutting_proxy import CuttingProxy


@pytest.fixture
def connect(zookeeper: RunningZooKeeper) -> ConnectString:
    return parse_connect_string(zookeeper.chroot())


@pytest.fixture
async def client(connect: ConnectString) -> AsyncIterator[Client]:
    client = Client(connect, session_timeout=6, patience=60)
    await client.start(60)
    await client.ensure("")
    yield client
    await client.close()


@pytest.fixture
def kazoo(connect: ConnectString, client: Client) -> Iterator[Any]:
    other = KazooClient(str(connect))
    other.start(60)
    yield other
    other.stop()
    other.close()


async def in_thread(call: Any, *arguments: Any, **named: Any) -> Any:
    return await asyncio.to_thread(call, *arguments, **named)


async def test_what_one_client_writes_the_other_reads(client: Client, kazoo: Any) -> None:
    path, stat = await client.create("/a", b"ours")
    assert path == "/a"
    data, seen = await in_thread(kazoo.get, "/a")
    assert (data, seen.czxid) == (b"ours", stat.czxid)
    await in_thread(kazoo.create, "/a/b", b"theirs")
    assert await client.children("/a") == ["b"]
    node = await client.get("/a/b")
    assert (node.data, node.stat.version, node.stat.ephemeral_owner) == (b"theirs", 0, 0)
    assert (await client.set("/a/b", b"changed", 0)).version == 1
    assert (await in_thread(kazoo.get, "/a/b"))[0] == b"changed"
    with pytest.raises(BadVersion):
        await client.set("/a/b", b"again", 0)
    with pytest.raises(NotEmpty):
        await client.delete("/a")
    with pytest.raises(NodeExists):
        await client.create("/a/b")
    with pytest.raises(NoNode):
        await client.get("/missing")
    await client.delete("/a/b", 1)
    assert await client.exists("/a/b") is None
    assert await in_thread(kazoo.exists, "/a/b") is None


async def test_sequences_and_the_end_of_a_session(client: Client, kazoo: Any) -> None:
    names = [(await client.create("/n-", b"", SEQUENCE))[0] for _ in range(2)]
    assert names == ["/n-0000000000", "/n-0000000001"]
    await client.create("/here", b"", EPHEMERAL)
    session = await client.session()
    assert (await in_thread(kazoo.exists, "/here")).ephemeralOwner == session.id
    await client.close()
    assert session.lost.is_set()
    await in_thread(kazoo.sync, "/")
    assert await in_thread(kazoo.exists, "/here") is None
    with pytest.raises(ConnectionLoss):
        await client.get("/n-0000000000")


async def test_a_multi_is_all_or_nothing(client: Client) -> None:
    await client.create("/base")
    assert await client.multi([Check("/base", 0), Create("/one", b"1")]) is None
    failed = await client.multi([Check("/base", 7), Create("/two", b"2")])
    assert failed is not None and failed.part == 0 and isinstance(failed.error, BadVersion)
    failed = await client.multi([Check("/base"), Check("/gone"), Create("/two", b"2")])
    assert failed is not None and failed.part == 1 and isinstance(failed.error, NoNode)
    failed = await client.multi([Create("/two", b"2"), Create("/one", b"again")])
    assert failed is not None and failed.part == 1 and isinstance(failed.error, NodeExists)
    assert await client.exists("/two") is None


async def test_watches_fire_once_also_after_another_connection(
    zookeeper: RunningZooKeeper, connect: ConnectString, kazoo: Any
) -> None:
    async with CuttingProxy(zookeeper.port) as proxy:
        client = Client(ConnectString((("127.0.0.1", proxy.port),), connect.chroot), session_timeout=6)
        session = await client.start(60)
        fired: list[str] = []
        await client.create("/there", b"")
        await client.get("/there", lambda: fired.append("data"))
        assert await client.exists("/coming", lambda: fired.append("created")) is None
        await client.children("/there", lambda: fired.append("children"))
        proxy.refusing = True
        proxy.cut()
        # All of it happens while nobody is connected.
        await in_thread(kazoo.set, "/there", b"new")
        await in_thread(kazoo.create, "/coming")
        await in_thread(kazoo.create, "/there/child")
        assert fired == []
        proxy.refusing = False
        await wait_until_async(lambda: len(fired) == 3)
        assert sorted(fired) == ["children", "created", "data"]
        assert await client.session() is session
        await in_thread(kazoo.set, "/there", b"newer")
        await client.sync()
        assert len(fired) == 3
        await client.close()


async def test_nodes_can_belong_to_a_user(connect: ConnectString, client: Client, kazoo: Any) -> None:
    ours = Client(connect, credentials=[("digest", b"mill:stream")], set_acl=True)
    await ours.start(60)
    await ours.create("/secret", b"s")
    await in_thread(kazoo.add_auth, "digest", "mill:stream")
    acls, _ = await in_thread(kazoo.get_acls, "/secret")
    assert acls == [make_digest_acl("mill", "stream", all=True)]
    with pytest.raises(AccessDenied):
        await client.get("/secret")
    assert (await ours.get("/secret")).data == b"s"
    await ours.close()


async def test_a_chroot_belongs_to_the_user_who_makes_it(zookeeper: RunningZooKeeper) -> None:
    """Whoever may change a node may delete what is directly below it."""
    connect = parse_connect_string(f"{zookeeper.chroot()}/shared/own")
    ours = Client(connect, credentials=[("digest", b"mill:stream")], set_acl=True)
    await ours.start(60)
    await ours.ensure("/controller")
    stranger = Client(connect)
    await stranger.start(60)
    with pytest.raises(AccessDenied):
        await stranger.delete("/controller")
    beside = Client(parse_connect_string(f"{zookeeper.chroot()}/shared/other"))
    await beside.start(60)
    await beside.ensure("/controller")
    for client in (ours, stranger, beside):
        await client.close()


async def test_nobody_there() -> None:
    async with CuttingProxy(1) as nobody:
        nobody.refusing = True
        client = Client(parse_connect_string(f"127.0.0.1:{nobody.port}"))
        with pytest.raises(ConnectionLoss, match=f"no connection to ZooKeeper at 127.0.0.1:{nobody.port}"):
            await client.start(0.2)


ANSWER = struct.pack(">iiiqi", 36, 0, 6000, 7, 16) + bytes(16)  # a good handshake


@pytest.mark.parametrize(
    "answers",
    [
        [b"\xff\xff\xff\xff"],
        [b"\x7f\xff\xff\xff"],
        [b"\0\0\0\x02ab"],
        [ANSWER, b"\0\0\0\x01x"],
        [ANSWER, struct.pack(">iiqi", 16, 99, 0, 0)],  # nobody asked
        [ANSWER, struct.pack(">iiqi", 16, 1, 0, 0)],  # no content
        [ANSWER, struct.pack(">iiqii", 20, 1, 0, 0, 2**31 - 1)],
        [ANSWER, struct.pack(">iiqiiii", 28, -1, 0, 0, 1, 3, 900)],
    ],
)
async def test_a_server_that_talks_nonsense(answers: list[bytes]) -> None:
    """It costs the connection and is tried again, until the patience ends."""

    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        for answer in answers:
            await reader.read(4096)
            writer.write(answer)
        await reader.read(4096)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = Client(parse_connect_string(f"127.0.0.1:{port}"), session_timeout=2, patience=1)
    with pytest.raises((ConnectionLoss, MalformedResponse)):
        await client.start(1)
        await client.get("/a")
    await client.close()
    server.close()
    for writer in writers:
        writer.close()
    await asyncio.sleep(0.01)  # their transports are closed before the loop is


def test_fields_that_lie_about_their_length() -> None:
    for content in (b"", b"\0\0", b"\0\0\0\x05abc", b"\xff\xff\xff\xfe"):
        with pytest.raises(MalformedResponse):
            Reader(content).string()
    with pytest.raises(MalformedResponse):
        Reader(struct.pack(">i", 10**9)).strings()
    with pytest.raises(MalformedResponse):
        Reader(b"\0\0\0\x01\xff").string()
    assert set_watches(1, ["/a"], [], []).startswith(bytes(7) + b"\1")


async def test_an_ensemble_that_loses_its_leader(ensemble: RunningEnsemble) -> None:
    client = Client(parse_connect_string(ensemble.address), session_timeout=6, patience=60)
    session = await client.start(60)
    await client.create("/kept", b"", EPHEMERAL)
    leader = next(server for server in ensemble.servers if "mode=leader" in server.log())
    leader.kill()

    async def written() -> bool:
        try:
            await client.set("/kept", b"after")
            return True
        except ConnectionLoss:
            return False

    await wait_until_async(written)
    assert await client.session() is session
    stat = await client.exists("/kept")
    assert stat is not None and stat.ephemeral_owner == session.id
    await client.close()


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[RunningEnsemble]:
    with RunningEnsemble(tmp_path) as running:
        yield running
