"""What the two models of a disk may and may not show after a power failure."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from .disk import Disk, Model
from .trace import Entry


def follow(disk: Disk, *steps: tuple[dict[str, Any], bytes]) -> None:
    for what, data in steps:
        disk.follow(Entry(what, data))


def do(what: str, data: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
    return {"do": what, **fields}, data


def synced(number: str, **fields: Any) -> list[tuple[dict[str, Any], bytes]]:
    return [do("sync", id=number, **fields), do("synced", id=number)]


def states(disk: Disk, model: Model, folder: Path) -> set[tuple[tuple[str, bytes], ...]]:
    """All states that show up in many throws of the dice."""
    seen = set()
    for seed in range(300):
        target = folder / f"{model}-{seed}"
        disk.write_out(target, model, random.Random(seed))
        seen.add(
            tuple((path.name, path.read_bytes()) for path in sorted(target.rglob("*")) if path.is_file())
        )
    return seen


def test_synced_bytes_and_names_are_always_there(tmp_path: Path) -> None:
    disk = Disk()
    follow(disk, do("create", name="a", file=1), do("write", b"one", file=1, at=0))
    follow(disk, *synced("1", file=1), *synced("2", folder="."))
    for model in ("strict", "ordered"):
        assert states(disk, model, tmp_path) == {(("a", b"one"),)}


def test_strictly_a_synced_file_may_have_no_name(tmp_path: Path) -> None:
    disk = Disk()
    follow(disk, do("create", name="a", file=1), do("write", b"one", file=1, at=0), *synced("1", file=1))
    assert states(disk, "strict", tmp_path) == {(), (("a", b"one"),)}
    assert states(disk, "ordered", tmp_path) == {(("a", b"one"),)}


def test_what_was_written_while_a_sync_ran_is_not_covered(tmp_path: Path) -> None:
    disk = Disk()
    follow(disk, do("create", name="a", file=1), *synced("0", folder="."))
    follow(disk, do("write", b"one", file=1, at=0), do("sync", id="1", file=1))
    follow(disk, do("write", b"two", file=1, at=3), do("synced", id="1"))
    for model in ("strict", "ordered"):
        assert states(disk, model, tmp_path) == {(("a", b"one"),), (("a", b"onetwo"),)}


def test_only_the_strict_disk_leaves_holes(tmp_path: Path) -> None:
    disk = Disk()
    follow(disk, do("create", name="a", file=1), *synced("0", folder="."))
    follow(disk, do("write", b"one", file=1, at=0), do("write", b"two", file=1, at=3))
    assert (("a", b"\0\0\0two"),) in states(disk, "strict", tmp_path)
    assert states(disk, "ordered", tmp_path) == {(("a", b""),), (("a", b"one"),), (("a", b"onetwo"),)}


def test_a_rename_is_all_or_nothing(tmp_path: Path) -> None:
    disk = Disk()
    follow(disk, do("create", name="a", file=1), do("write", b"old", file=1, at=0))
    follow(disk, *synced("1", file=1), *synced("2", folder="."))
    follow(disk, do("create", name="b", file=2), do("write", b"new", file=2, at=0), *synced("3", file=2))
    follow(disk, do("rename", name="b", to="a"))
    for model in ("strict", "ordered"):
        assert {dict(state)["a"] for state in states(disk, model, tmp_path)} == {b"old", b"new"}


def test_names_survive_in_order_on_an_ordered_disk(tmp_path: Path) -> None:
    disk = Disk()
    follow(disk, do("create", name="a", file=1), do("create", name="b", file=2), do("unlink", name="a"))
    names = {tuple(name for name, _ in state) for state in states(disk, "ordered", tmp_path)}
    assert names == {(), ("a",), ("a", "b"), ("b",)}
