"""Records what a process does to the files below one folder. Python imports this when it starts.

The broker and the child that compacts for it change files through `os` and `open` only, so these are wrapped.
Every change becomes one entry of the trace (see `trace.py`), in the order in which the changes took effect:

* a write, truncation, rename or removal is written down after it is done, before its caller goes on;
* a sync is written down twice, before it begins and after it has ended: it vouches for the entries before the
  first.

So when an entry stands before the beginning of a sync, the change was really made before that sync began.
"""

import builtins
import io
import json
import os
import struct
import threading
from typing import Any

ROOT = os.environ.get("MILLSTREAM_TRACE_ROOT", "")
TRACE = os.environ.get("MILLSTREAM_TRACE_FILE", "")
_WRITING = os.O_WRONLY | os.O_RDWR

_real = {
    name: getattr(os, name)
    for name in (
        "close",
        "copy_file_range",
        "fdatasync",
        "fsync",
        "ftruncate",
        "mkdir",
        "open",
        "pwrite",
        "pwritev",
        "rename",
        "replace",
        "rmdir",
        "truncate",
        "unlink",
        "write",
    )
}
_real_open = builtins.open
_lock = threading.RLock()  # the collector may close a file while this thread holds it
_paths: dict[int, str] = {}  # descriptors of files and folders below the root
_syncs = 0


def _record(entry: dict[str, Any], data: bytes = b"") -> None:
    header = json.dumps(entry).encode()
    _real["write"](_trace, struct.pack(">II", len(header), len(data)) + header + data)


def _below(path: Any, dir_fd: int | None = None) -> str | None:
    text = os.fspath(path)
    text = text.decode() if isinstance(text, bytes) else str(text)
    if dir_fd is not None:
        text = os.path.join(_paths.get(dir_fd, ""), text)
    text = os.path.normpath(os.path.join(os.getcwd(), text))
    return os.path.relpath(text, ROOT) if text.startswith(ROOT + os.sep) or text == ROOT else None


def _inode(fd: int) -> int:
    return os.fstat(fd).st_ino


def _open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    name = _below(path, dir_fd) if not isinstance(path, int) else None
    if name is None:
        return int(_real["open"](path, flags, mode, dir_fd=dir_fd))
    with _lock:
        there = os.path.lexists(os.path.join(ROOT, name))
        fd = int(_real["open"](path, flags, mode, dir_fd=dir_fd))
        _paths[fd] = os.path.join(ROOT, name)
        if not there:
            _record({"do": "create", "name": name, "file": _inode(fd)})
        elif flags & os.O_TRUNC and flags & _WRITING:
            _record({"do": "truncate", "file": _inode(fd), "size": 0})
    return fd


def _close(fd: int) -> None:
    with _lock:
        _paths.pop(fd, None)
    _real["close"](fd)


def _pwrite(fd: int, data: Any, position: int) -> int:
    if fd not in _paths:
        return int(_real["pwrite"](fd, data, position))
    with _lock:
        count = int(_real["pwrite"](fd, data, position))
        _record({"do": "write", "file": _inode(fd), "at": position}, bytes(memoryview(data)[:count]))
    return count


def _pwritev(fd: int, parts: Any, position: int, *flags: int) -> int:
    if fd not in _paths:
        return int(_real["pwritev"](fd, parts, position, *flags))
    return _pwrite(fd, b"".join(parts), position)


def _write(fd: int, data: Any) -> int:
    if fd not in _paths:
        return int(_real["write"](fd, data))
    with _lock:
        at = os.lseek(fd, 0, os.SEEK_CUR)
        count = int(_real["write"](fd, data))
        _record({"do": "write", "file": _inode(fd), "at": at}, bytes(memoryview(data)[:count]))
    return count


def _copy_file_range(source: int, target: int, count: int, at: int, to: int) -> int:
    return _pwrite(target, os.pread(source, count, at), to)


def _ftruncate(fd: int, size: int) -> None:
    with _lock:
        _real["ftruncate"](fd, size)
        if fd in _paths:
            _record({"do": "truncate", "file": _inode(fd), "size": size})


def _truncate(path: Any, size: int) -> None:
    if isinstance(path, int):
        return _ftruncate(path, size)
    with _lock:
        _real["truncate"](path, size)
        if _below(path) is not None:
            _record({"do": "truncate", "file": os.stat(path).st_ino, "size": size})


def _rename(source: Any, target: Any, **more: Any) -> None:
    _named("rename", "rename", source, target, **more)


def _replace(source: Any, target: Any, **more: Any) -> None:
    _named("replace", "rename", source, target, **more)


def _unlink(path: Any, *, dir_fd: int | None = None) -> None:
    with _lock:
        _real["unlink"](path, dir_fd=dir_fd)
        name = _below(path, dir_fd)
        if name is not None:
            _record({"do": "unlink", "name": name})


def _rmdir(path: Any, *, dir_fd: int | None = None) -> None:
    with _lock:
        _real["rmdir"](path, dir_fd=dir_fd)
        name = _below(path, dir_fd)
        if name is not None:
            _record({"do": "unlink", "name": name})


def _mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
    with _lock:
        _real["mkdir"](path, mode, dir_fd=dir_fd)
        name = _below(path, dir_fd)
        if name is not None:
            _record({"do": "mkdir", "name": name})


def _named(real: str, what: str, source: Any, target: Any, **more: Any) -> None:
    with _lock:
        _real[real](source, target, **more)
        name = _below(source)
        if name is not None:
            _record({"do": what, "name": name, "to": _below(target)})


def _syncing(real: str, fd: int) -> None:
    path = _paths.get(fd)
    if path is None:
        return _real[real](fd)
    global _syncs
    with _lock:
        _syncs += 1
        number = f"{os.getpid()}-{_syncs}"
        if os.path.isdir(path):
            _record({"do": "sync", "id": number, "folder": _below(path)})
        else:
            _record({"do": "sync", "id": number, "file": _inode(fd)})
    _real[real](fd)
    with _lock:
        _record({"do": "synced", "id": number})


class _Raw(io.RawIOBase):
    """A file opened by `open` for writing, whose writes pass through `os.write`."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def write(self, data: Any) -> int:
        return os.write(self._fd, data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._fd)


def _built_in_open(file: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
    if isinstance(file, int) or mode not in ("wb", "w") or _below(file) is None:
        return _real_open(file, mode, *args, **more)
    raw = io.BufferedWriter(_Raw(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)))
    return raw if mode == "wb" else io.TextIOWrapper(raw, encoding="utf-8")


if ROOT and TRACE:
    _trace = _real["open"](TRACE, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    for _name, _wrapped in (
        ("open", _open),
        ("close", _close),
        ("pwrite", _pwrite),
        ("pwritev", _pwritev),
        ("write", _write),
        ("copy_file_range", _copy_file_range),
        ("ftruncate", _ftruncate),
        ("truncate", _truncate),
        ("rename", _rename),
        ("replace", _replace),
        ("unlink", _unlink),
        ("remove", _unlink),
        ("rmdir", _rmdir),
        ("mkdir", _mkdir),
        ("fsync", lambda fd: _syncing("fsync", fd if isinstance(fd, int) else fd.fileno())),
        ("fdatasync", lambda fd: _syncing("fdatasync", fd if isinstance(fd, int) else fd.fileno())),
    ):
        setattr(os, _name, _wrapped)
    builtins.open = _built_in_open
    # A child that is forked while another thread writes an entry would wait for that thread for ever.
    os.register_at_fork(before=_lock.acquire, after_in_child=_lock.release, after_in_parent=_lock.release)
