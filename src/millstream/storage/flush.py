"""Making written bytes durable, away from the log's own thread.

The log prepares a `Flush` (which files, up to which offset); `run` may then be called in any thread: it uses only
descriptors that are held open for it and paths that it opens itself. When it is back, the log moves its recovery point.
The order is log, indexes, epochs, names: the recovery point may only move when all that recovery relies on is safe.
"""

from __future__ import annotations

import os

from millstream.storage.epochs import FILE_NAME
from millstream.storage.files import replace_file, storage_error, sync_path
from millstream.storage.segment import INDEX, TIME_INDEX, TXN_INDEX, Segment


class Flush:
    __slots__ = (
        "_acquired",
        "_descriptors",
        "_paths",
        "done",
        "end_offset",
        "epochs",
        "folder",
        "generation",
        "lost_writes",
        "names",
        "segments",
    )

    def __init__(
        self, folder: str, segments: list[Segment], end_offset: int, generation: int, names: bool
    ) -> None:
        self.folder = folder
        self.segments = segments
        self.end_offset = end_offset
        self.generation = generation
        self.names = names
        self.epochs: bytes | None = None
        self.done = False
        self.lost_writes = False  # an fsync of the log itself failed
        self._acquired: list[Segment] = []
        self._descriptors: list[int] = []
        self._paths: list[str] = []
        for segment in segments:
            self._descriptors.append(segment.acquire())
            self._acquired.append(segment)
            self._paths += [segment.stem + kind for kind in (INDEX, TIME_INDEX, TXN_INDEX)]

    def run(self) -> None:
        try:
            self.lost_writes = True
            for descriptor in self._descriptors:
                os.fdatasync(descriptor)
            self.lost_writes = False
            for path in self._paths:
                try:
                    sync_path(path)
                except FileNotFoundError:
                    pass  # not written yet, or the segment was deleted meanwhile
            if self.epochs is not None:
                replace_file(os.path.join(self.folder, FILE_NAME), self.epochs)
            elif self.names:
                sync_path(self.folder)
        except OSError as error:
            raise storage_error(f"flush {self.folder}", error) from error
        self.done = True

    def release(self) -> None:
        for segment in self._acquired:
            segment.release()
        self._acquired.clear()
