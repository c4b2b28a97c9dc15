"""Every code block of README and docs runs as printed; only hosts and ports are replaced.

The blocks of a page run in order and share a folder, Python's names and a platform: the one that the page
starts, or one that is started for it. A page that names no address of a service needs none.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, ROOT, Block, blocks_of
from tests.docs.running import ADDRESS, UP, PageRun

# Raise this only together with a reason beside the block.
NOT_RUN = 5

RUNNABLE = {page: [block for block in blocks_of(page) if not block.not_run] for page in PAGES}
LINK = re.compile(r"\]\(([^)\s]+)\)")


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _run_page(blocks: list[Block], folder: Path) -> None:
    run = PageRun(folder)
    starts_one = any(UP.search(block.text) for block in blocks)
    needs_one = any(ADDRESS.search(block.text) for block in blocks)
    try:
        if needs_one and not starts_one:
            _millstream(run, "up", "-d", "--port-base", str(run.port_base))
        for block in blocks:
            run.run(block)
    finally:
        run.close()
        if needs_one or starts_one:
            _millstream(run, "down", check=False)


def _millstream(run: PageRun, *arguments: str, check: bool = True) -> None:
    said = run.folder / "platform.log"
    with said.open("a") as log:
        ended = subprocess.run(["millstream", *arguments], env=run.environment, stdout=log, stderr=log)
    assert ended.returncode == 0 or not check, said.read_text()


def _runs_without_spark(blocks: list[Block]) -> bool:
    """With Java, a page that has blocks for Spark runs once and as a whole, in the test below."""
    needs = [block.needs_spark for block in blocks]
    return False in needs and (True not in needs or shutil.which("java") is None)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page", [page for page, blocks in RUNNABLE.items() if _runs_without_spark(blocks)], ids=_name
)
def test_page(page: Path, tmp_path: Path) -> None:
    _run_page([block for block in RUNNABLE[page] if not block.needs_spark], tmp_path)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.spark
@pytest.mark.parametrize(
    "page", [page for page, blocks in RUNNABLE.items() if any(b.needs_spark for b in blocks)], ids=_name
)
def test_page_with_spark(page: Path, tmp_path: Path) -> None:
    _run_page(RUNNABLE[page], tmp_path)


def test_blocks_that_do_not_run_are_counted() -> None:
    not_run = [
        f"{block.where}: {block.not_run}" for page in PAGES for block in blocks_of(page) if block.not_run
    ]
    assert len(not_run) == NOT_RUN, "\n".join(not_run)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_code_stands_in_blocks(page: Path) -> None:
    """Markdown also takes indented lines for code, which nobody would run."""
    inside = False
    before = ""
    for line in page.read_text().splitlines():
        inside ^= line.lstrip().startswith("```")
        assert inside or before or not line.startswith("    "), f"{_name(page)}: {line}"
        before = line
    assert not inside


def test_the_first_page_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def _anchors(page: Path) -> set[str]:
    headings = [line.lstrip("#").strip() for line in page.read_text().splitlines() if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{_name(page)}: {target}"
        if anchor:
            assert anchor in _anchors(there), f"{_name(page)}: {target}"
