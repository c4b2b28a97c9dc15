"""A proxy before ZooKeeper that cuts connections at the worst moment: the request went through, its answer
did not."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct


class CuttingProxy:
    """With a seed, connections last for 4 to 60 requests. `cut()` ends all now; while `refusing`, new ones
    are closed at once."""

    def __init__(self, port: int, seed: int | None = None) -> None:
        self._target = port
        self._cuts = seed is not None
        self._random = random.Random(seed)
        self._writers: set[asyncio.StreamWriter] = set()
        self.cuts = 0
        self.refusing = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> CuttingProxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *problem: object) -> None:
        self._server.close()
        self.cut()
        # Each has its end by now; a task that the loop cancels instead would be reported as an error.
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, server_writer}
        try:
            answers = asyncio.create_task(self._copy(server_reader, writer))
            try:
                await self._requests(reader, writer, server_writer)
            finally:
                answers.cancel()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers -= {writer, server_writer}
            writer.transport.abort()
            server_writer.transport.abort()

    async def _requests(
        self, reader: asyncio.StreamReader, client: asyncio.StreamWriter, server: asyncio.StreamWriter
    ) -> None:
        count = 0
        # The first one is short: a test that makes few requests sees a cut, too.
        last = 4 if not self.cuts else self._random.randint(4, 60)
        while True:
            head = await reader.readexactly(4)
            body = await reader.readexactly(struct.unpack(">i", head)[0])
            count += 1
            if self._cuts and count == last:
                self.cuts += 1
                client.transport.abort()
                server.write(head + body)
                await server.drain()
                # The pause is for ZooKeeper: a connection that is closed too early takes the request with it.
                await asyncio.sleep(0.005)
                return
            server.write(head + body)
            await server.drain()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
