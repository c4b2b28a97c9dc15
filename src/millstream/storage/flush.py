"""Making written bytes durable, away from the log's own thread.

The log prepares a `Flush` (which files, up to which offset); `run` may then be called in any thread: it uses
only descriptors that are held open for it and paths that it opens itself. When it is back, the log moves its
recovery point. The order is log, indexes, topic id, epochs, names: the recovery point may only move when all
that recovery relies on is safe. A flush vouches for what was there when it was planned. What is appended,
rolled or renamed while it runs belongs to the next one, so nothing is struck off the list of what is not yet
durable before `_end_flush`, and then only what this flush has seen complete.
"""

from __future__ import annotations

import os

from millstream.storage.checkpoints import PARTITION_METADATA
from millstream.storage.epochs import FILE_NAME
from millstream.storage.files import SyncFailed, replace_file, storage_error, sync, sync_path
from millstream.storage.segment import INDEX, TIME_INDEX, TXN_INDEX, Segment


class Flush:
    __slots__ = (
        "_acquired",
        "_descriptors",
        "_paths",
        "closed",
        "done",
        "end_offset",
        "epochs",
        "folder",
        "generation",
        "name_changes",
        "names",
        "new_folder",
        "sync_error",
    )

    def __init__(
        self,
        folder: str,
        closed: list[Segment],
        active: Segment | None,
        end_offset: int,
        generation: int,
        name_changes: int,
        names: bool,
        new_folder: bool,
    ) -> None:
        self.folder = folder
        # Nothing is written to these any more. The active segment may grow and roll while its fsync runs.
        self.closed = closed
        self.end_offset = end_offset
        self.generation = generation
        self.name_changes = name_changes
        self.names = names
        self.new_folder = new_folder
        self.epochs: bytes | None = None
        self.done = False
        self.sync_error: SyncFailed | None = None  # worse than a write that failed, which is tried again
        self._acquired: list[Segment] = []
        self._descriptors: list[tuple[int, str]] = []
        self._paths: list[str] = []
        for segment in [*closed, active] if active is not None else closed:
            self._descriptors.append((segment.acquire(), segment.path))
            self._acquired.append(segment)
            self._paths += [segment.stem + suffix for suffix in (INDEX, TIME_INDEX, TXN_INDEX)]

    def run(self) -> None:
        try:
            for descriptor, path in self._descriptors:
                sync(descriptor, path, data_only=True)
            for path in self._paths:
                self._sync_if_there(path)
            if self.new_folder:
                self._sync_if_there(os.path.join(self.folder, PARTITION_METADATA))
            if self.epochs is not None:
                replace_file(os.path.join(self.folder, FILE_NAME), self.epochs)
            elif self.names:
                sync_path(self.folder)
            if self.new_folder:
                sync_path(os.path.dirname(self.folder))
        except OSError as error:
            if isinstance(error, SyncFailed):
                self.sync_error = error
            raise storage_error(f"flush {self.folder}", error) from error
        self.done = True

    @staticmethod
    def _sync_if_there(path: str) -> None:
        """Not written yet is fine, and so is deleted meanwhile."""
        try:
            sync_path(path)
        except FileNotFoundError:
            pass

    def release(self) -> None:
        for segment in self._acquired:
            segment.release()
        self._acquired.clear()
