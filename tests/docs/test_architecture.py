"""Every path and module that docs/ names exists, and the walks of docs/architecture.md do not go back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from millstream.connect.plugins import CONNECTORS, load
from millstream.settings.config_def import BROKER
from tests.docs.blocks import PAGES, ROOT, blocks_of

PACKAGE = ROOT / "src" / "millstream"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)*(?:/|\.py|\.json|\.txt))`")
# Not our own settings, which begin with the same word: millstream.loop.slow.callback.ms
SETTINGS = "leader|log|loop|metrics|fish|driver|dedicated|restarts"
MODULE = re.compile(rf"\bmillstream(?!\.(?:{SETTINGS})\b)(?:\.[a-z_][a-z0-9_]*)+")
TREE_ENTRY = re.compile(r"^( *)([\w/]+/) ")
# Named beside the folder they are in, or in a user's own folder.
FOREIGN = {"run.py", "classes.txt", "conftest.py", "millstream-metadata/"}


def _exists(path: str) -> bool:
    return any((base / path).exists() for base in (ROOT, PACKAGE, ROOT / "src", ROOT / "benchmarks"))


def _named(page: Path) -> list[str]:
    return [path for path in PATH.findall(page.read_text()) if path not in FOREIGN]


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name
)
def test_paths_exist(page: Path) -> None:
    if page.name == "renames.md":
        return
    assert [path for path in _named(page) if not _exists(path)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_modules_exist(page: Path) -> None:
    if page.name in ("renames.md", "settings.md"):
        return
    missing = []
    # Some connectors, and the broker, have settings whose names begin like modules.
    settings = {name for full in CONNECTORS for name in load(full).config.keys} | set(BROKER)
    for name in MODULE.findall(page.read_text()):
        if name in settings:
            continue
        parts = name.split(".")[1:]
        # The last part may be a function or a class of the module before it.
        for tried in (parts, parts[:-1]):
            path = PACKAGE.joinpath(*tried)
            if tried and (path.is_dir() or path.with_suffix(".py").exists()):
                break
        else:
            missing.append(name)
    assert missing == []


def test_new_names_exist() -> None:
    rows = re.findall(
        r"^\| `([\w/]+)` \| (`[\w/`, ]+`) \|$", (ROOT / "docs" / "renames.md").read_text(), re.MULTILINE
    )
    assert len(rows) > 50
    new = [name.rstrip("/") for _, names in rows for name in re.findall(r"[\w/]+", names)]
    assert [name for name in new if not _exists(name) and not _exists(f"{name}.py")] == []


def test_new_classes_are_where_the_list_says() -> None:
    rows = re.findall(
        r"^\| `([\w/]+\.py)` \| .+ \| (`.+`) \|$", (ROOT / "docs" / "renames.md").read_text(), re.MULTILINE
    )
    assert len(rows) > 50
    names = [(path, name) for path, names in rows for name in re.findall(r"(\w+)`", names)]
    assert [
        (path, name) for path, name in names if not re.search(rf"\b{name}\b", (PACKAGE / path).read_text())
    ] == []


def test_the_tree_is_the_package() -> None:
    """The picture shows every package, and only those that are there."""
    (tree,) = [block.text for block in blocks_of(ARCHITECTURE) if block.language == "text"]
    shown = set()
    parent = ""
    for line in tree.splitlines()[1:]:
        if (match := TREE_ENTRY.match(line)) is None:
            continue
        if len(match[1]) == 2:
            parent = match[2]
            shown.add(parent)
        elif len(match[1]) > 2:
            assert (PACKAGE / parent / match[2]).is_dir(), line
        else:
            assert (ROOT / match[2]).is_dir(), line
    packages = {f"{folder.name}/" for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists()}
    assert shown == packages


def _walks() -> dict[str, list[str]]:
    text = ARCHITECTURE.read_text()
    section = text[text.index("## Walks") : text.index("## How the broker works")]
    return {part.split("\n", 1)[0]: PATH.findall(part) for part in section.split("### ")[1:]}


@pytest.mark.parametrize("walk", _walks())
def test_no_walk_goes_back(walk: str) -> None:
    files = _walks()[walk]
    assert len(files) >= 8
    assert len(files) == len(set(files))
