"""What a disk may hold after the power went, given what was done to it before.

`Disk` follows a trace. It knows of each file and folder what is durable, and which later changes are pending:
made, but not covered by a sync that has ended. Two models say what may become of those:

* `strict`, as POSIX promises: nothing but what was synced. Each pending write may be there, gone or torn at a
  sector; each pending name may be there or not, independently of others. A file's bytes do not bring its
  name, nor the other way.
* `ordered`, as ext4 does it by default: names and sizes reach the journal in the order in which they changed,
  so what survives of them is a prefix, and any sync commits all before it. Bytes are written before the size
  that covers them: a file that grew ends after some page, never with a hole. Replacing a file by a rename
  writes the new bytes first.

Between these two lie the file systems that people use.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from .trace import Entry

Model = Literal["strict", "ordered"]
SECTOR, PAGE = 512, 4096


class Write(NamedTuple):
    number: int
    at: int
    data: bytes


class Cut(NamedTuple):
    number: int
    size: int


@dataclass(eq=False)
class File:
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Write | Cut] = field(default_factory=list)
    created: int = 0
    written_out: int = 0  # everything before this entry has its bytes on disk: it replaced another file


@dataclass(eq=False)
class Folder:
    durable: dict[str, File | Folder] = field(default_factory=dict)
    current: dict[str, File | Folder] = field(default_factory=dict)
    pending: list[Naming] = field(default_factory=list)


@dataclass(eq=False)
class Naming:
    """A change of names in one folder, all of it or nothing: `gone` is removed, `name` becomes `item`."""

    number: int
    gone: str | None
    name: str | None
    item: File | Folder

    def apply(self, names: dict[str, File | Folder]) -> None:
        if self.gone is not None and names.get(self.gone) is self.item:
            del names[self.gone]
        if self.name is not None:
            names[self.name] = self.item


class Disk:
    """`sync=False` forgets every sync: a checker that then finds nothing wrong checks nothing."""

    def __init__(self, sync: bool = True) -> None:
        self.root = Folder()
        self._files: dict[int, File] = {}  # by inode
        self._syncs: dict[str, tuple[int, File | Folder]] = {}
        self._count = 0
        self._committed = 0  # names and sizes that changed before this entry are in the journal (ordered)
        self._sync = sync

    # -- following a trace -------------------------------------------------------------------------

    def follow(self, entry: Entry) -> None:
        self._count += 1
        does = {
            "create": self._create,
            "mkdir": self._mkdir,
            "write": self._write,
            "truncate": self._truncate,
            "rename": self._rename,
            "unlink": self._unlink,
            "sync": self._begin_sync,
            "synced": self._end_sync,
        }.get(entry.what["do"])
        if does is not None:
            does(entry.what, entry.data)

    def _folder(self, path: str) -> Folder:
        folder = self.root
        for name in path.split(os.sep) if path and path != "." else []:
            found = folder.current[name]
            assert isinstance(found, Folder), path
            folder = found
        return folder

    def _change(self, path: str, gone: str | None, name: str | None, item: File | Folder) -> None:
        folder = self._folder(os.path.dirname(path))
        naming = Naming(self._count, gone, name, item)
        naming.apply(folder.current)
        folder.pending.append(naming)

    def _create(self, what: dict[str, Any], data: bytes) -> None:
        file = self._files[what["file"]] = File(created=self._count)
        self._change(what["name"], None, os.path.basename(what["name"]), file)

    def _mkdir(self, what: dict[str, Any], data: bytes) -> None:
        self._change(what["name"], None, os.path.basename(what["name"]), Folder())

    def _write(self, what: dict[str, Any], data: bytes) -> None:
        self._files[what["file"]].pending.append(Write(self._count, what["at"], data))

    def _truncate(self, what: dict[str, Any], data: bytes) -> None:
        self._files[what["file"]].pending.append(Cut(self._count, what["size"]))

    def _rename(self, what: dict[str, Any], data: bytes) -> None:
        source, target = what["name"], what["to"]
        assert os.path.dirname(source) == os.path.dirname(target), "a rename across folders is not modelled"
        folder = self._folder(os.path.dirname(source))
        item = folder.current[os.path.basename(source)]
        if isinstance(item, File) and os.path.basename(target) in folder.current:
            item.written_out = self._count
        self._change(target, os.path.basename(source), os.path.basename(target), item)

    def _unlink(self, what: dict[str, Any], data: bytes) -> None:
        name = os.path.basename(what["name"])
        item = self._folder(os.path.dirname(what["name"])).current[name]
        self._change(what["name"], name, None, item)

    # -- syncs -------------------------------------------------------------------------------------

    def _begin_sync(self, what: dict[str, Any], data: bytes) -> None:
        item = self._files[what["file"]] if "file" in what else self._folder(what["folder"])
        self._syncs[what["id"]] = (self._count, item)

    def _end_sync(self, what: dict[str, Any], data: bytes) -> None:
        began, item = self._syncs.pop(what["id"])
        if not self._sync:
            return
        if isinstance(item, Folder):
            self._committed = max(self._committed, began)
            for naming in [each for each in item.pending if each.number < began]:
                naming.apply(item.durable)
                item.pending.remove(naming)
            return
        size = len(item.durable)
        for change in [each for each in item.pending if each.number < began]:
            _apply(item.durable, change)
            item.pending.remove(change)
        if len(item.durable) != size or item.created > self._committed:
            self._committed = max(self._committed, began)

    # -- after the power failure -------------------------------------------------------------------

    def write_out(self, target: Path, model: Model, chance: random.Random) -> None:
        """One of the states that the disk may be in now, as files below `target`."""
        if model == "strict":
            mood = chance.choice(("lost", "lost", "kept", "mixed", "mixed"))
            keep = {"lost": 0.0, "kept": 1.0, "mixed": chance.choice((0.1, 0.5, 0.9))}[mood]
            cut = 0
        else:
            keep = chance.choice((0.0, 0.5, 1.0))
            cut = chance.randint(self._committed, self._count + 1)
        self._write_folder(self.root, target, model, chance, keep, cut)

    def _write_folder(
        self, folder: Folder, path: Path, model: Model, chance: random.Random, keep: float, cut: int
    ) -> None:
        path.mkdir(exist_ok=True)
        names = dict(folder.durable)
        for naming in folder.pending:
            if naming.number < cut if model == "ordered" else chance.random() < keep:
                naming.apply(names)
        for name, item in names.items():
            if isinstance(item, Folder):
                self._write_folder(item, path / name, model, chance, keep, cut)
            elif model == "strict":
                (path / name).write_bytes(_strict(item, chance, keep))
            else:
                (path / name).write_bytes(_ordered(item, chance, keep, cut))


def _apply(content: bytearray, change: Write | Cut) -> None:
    if isinstance(change, Cut):
        if len(content) > change.size:
            del content[change.size :]
        else:
            content.extend(bytes(change.size - len(content)))
    else:
        if len(content) < change.at:
            content.extend(bytes(change.at - len(content)))
        content[change.at : change.at + len(change.data)] = change.data


def _strict(file: File, chance: random.Random, keep: float) -> bytes:
    content = bytearray(file.durable)
    for change in file.pending:
        if isinstance(change, Write) and 0 < keep < 1:
            for at in range(0, len(change.data), SECTOR):
                if chance.random() < keep:
                    _apply(content, Write(0, change.at + at, change.data[at : at + SECTOR]))
        elif chance.random() < keep:
            _apply(content, change)
    return bytes(content)


def _ordered(file: File, chance: random.Random, keep: float, cut: int) -> bytes:
    content = bytearray(file.durable)
    for change in file.pending:
        if isinstance(change, Cut):
            if change.number < cut:
                _apply(content, change)
            continue
        if change.number < file.written_out < cut:
            _apply(content, change)
            continue
        # Grown, as far as a page that was written out; or bytes changed in place, at any time.
        if chance.random() < keep and change.at <= len(content):
            _apply(content, change)
            continue
        room = (change.at // PAGE + 1) * PAGE - change.at
        if change.at <= len(content) and chance.random() < keep:
            _apply(content, Write(0, change.at, change.data[:room]))
        break
    return bytes(content)
