"""What a first start of Spark leaves behind, so that the next ones are faster: its folder.

`$XDG_CACHE_HOME/millstream` (`~/.cache/millstream`). Everything in it can be deleted at any time, and where
it cannot be written Spark just starts as slowly as it does by itself.
"""

import hashlib
import os
from pathlib import Path


def cache_folder() -> Path | None:
    """The folder, or None if there cannot be one."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base, "millstream")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def key_of(*parts: object) -> str:
    """A short name for what all of these have in common."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def stamp_of(path: Path) -> tuple[str, int, int]:
    """A file or folder in its present state."""
    about = path.stat()
    return str(path), about.st_mtime_ns, about.st_size
