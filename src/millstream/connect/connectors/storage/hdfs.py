"""HDFS, by hdfs-native: a client of its own, which needs neither Java nor libhdfs.

A file is written in the task's folder and gets its name by a rename, which HDFS does in one step. A NameNode
that does not answer is tried again later; a file that breaks off while it is written cannot be cut, so the
task fails, and begins its range anew.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import TypeVar
from urllib.parse import urlsplit

from hdfs_native import Client, FileWriter, WriteOptions

from millstream.connect.connectors.storage.stores import COPY_BYTES, Output, Store
from millstream.connect.errors import ConnectError, RetriableError

# Of a NameNode that does not answer: by default the client would try for some minutes, in one call.
_SETTINGS = {
    "dfs.client.failover.max.attempts": "3",
    "dfs.client.failover.sleep.base.millis": "300",
    "dfs.client.failover.sleep.max.millis": "2000",
}
_FOLDER_MODE = 0o755
Found = TypeVar("Found")


class HdfsStore(Store):
    def __init__(self, uri: str, unfinished: str) -> None:
        split = urlsplit(uri)
        self._address = f"{split.scheme}://{split.netloc}"
        self.root = split.path.rstrip("/")
        self.unfinished = f"{self.root}/{unfinished}"
        try:
            self.client = Client(self._address, _SETTINGS)
        except (RuntimeError, OSError) as error:
            raise ConnectError(f"{uri} cannot be used: {_first_line(error)}") from None

    def output(self, name: str) -> Output:
        return _HdfsOutput(self)

    def call(self, act: Callable[[], Found]) -> Found:
        """What changes nothing by half, and may be done again."""
        try:
            return act()
        except PermissionError as error:
            raise ConnectError(f"HDFS at {self._address}: {_first_line(error)}") from None
        except (RuntimeError, OSError) as error:
            raise RetriableError(f"HDFS at {self._address}: {_first_line(error)}") from None

    def make_folder(self, path: str) -> None:
        self.call(lambda: self.client.mkdirs(path, _FOLDER_MODE, True))

    def clean(self) -> None:
        with contextlib.suppress(RuntimeError, OSError):
            self.client.delete(self.unfinished, True)

    close = clean


class _HdfsOutput(Output):
    def __init__(self, store: HdfsStore) -> None:
        super().__init__(COPY_BYTES)
        self._store = store
        self._unfinished = f"{store.unfinished}/{uuid.uuid4().hex}"
        self._writer: FileWriter | None = None
        self._closed = self._done = False

    def _move(self, data: bytes) -> None:
        store, writer = self._store, self._writer
        if writer is None:
            store.make_folder(store.unfinished)
            options = WriteOptions(overwrite=True)
            writer = self._writer = store.call(lambda: store.client.create(self._unfinished, options))
        view = memoryview(data)
        with self._whole():
            while view:
                view = view[writer.write(view) :]

    def _finish(self, rest: bytes, name: str) -> None:
        if self._done:
            return
        if not self._closed:
            self._move(rest)
            assert self._writer is not None
            with self._whole():
                self._writer.hsync()
                self._writer.close()
            self._held, self._held_bytes, self._closed = [], 0, True
        target = f"{self._store.root}/{name}"
        self._store.make_folder(target.rpartition("/")[0])
        self._store.call(lambda: self._name_it(target))
        self._done = True

    def _name_it(self, target: str) -> None:
        """A file that has the name already is of the same records, from before a crash; this one takes its
        place."""
        try:
            self._store.client.rename(self._unfinished, target, True)
        except FileNotFoundError:
            # It was renamed and the answer got lost; or it is lost itself.
            try:
                self._store.client.get_file_info(target)
            except FileNotFoundError:
                raise ConnectError(f"{self._unfinished} is gone") from None

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, OSError) as error:
            raise ConnectError(f"cannot write {self._unfinished}: {_first_line(error)}") from None

    def abort(self) -> None:
        if self._writer is None or self._done:
            return
        with contextlib.suppress(RuntimeError, OSError):
            if not self._closed:
                self._writer.close()
            self._store.client.delete(self._unfinished, False)


def _first_line(error: Exception) -> str:
    """Without the trace of the NameNode."""
    return str(error).partition("\n")[0]
