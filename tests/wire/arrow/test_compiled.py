"""What numba keeps on disk of a compiled loop: made once, made again if it is damaged, done without where
nothing can be kept."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba", reason="numba is not installed (pip install millstream[pipelines])")

from numba.core.caching import CacheImpl

LOOP = """
from millstream.wire.arrow.varint_loops import compiled, nb

@compiled(nb.int64(nb.int64))
def twice(number):
    return 2 * number
"""


def load(folder: Path) -> Any:
    spec = importlib.util.spec_from_file_location("loop_of_a_test", folder / "loop.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path / "kept"))
    (tmp_path / "loop.py").write_text(LOOP)
    return tmp_path


@pytest.mark.parametrize("damage", [b"", b"\x80\x05nonsense", b"\0" * 100])
@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_a_damaged_cache_is_made_again(folder: Path, suffix: str, damage: bytes) -> None:
    assert load(folder).twice(21) == 42
    kept = list((folder / "kept").rglob(f"*{suffix}"))
    assert kept
    for path in kept:
        path.write_bytes(damage)
    assert load(folder).twice(21) == 42
    assert all(path.read_bytes() != damage for path in (folder / "kept").rglob(f"*{suffix}"))
    again = load(folder).twice
    assert again(21) == 42
    assert sum(again.stats.cache_hits.values()) == 1


def test_without_a_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only installation, and no folder of the user's."""
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])
    assert load(folder).twice(21) == 42
    assert not (folder / "kept").exists()
