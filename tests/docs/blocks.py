"""The code blocks of a Markdown page, in order, with what the page says about running them.

A comment directly above a block tells how it is run:

    <!-- not run: REASON -->   the block cannot run here; test_pages.py counts these
    <!-- needs Spark -->       left out where there is no Spark
    <!-- service -->           runs until it is stopped, which happens at the end of the page

A block of language `output` is what the block before it prints; `...` stands for anything.
A block whose first line is a comment with a file name (`# orders.py`) is that file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(r"^( *)```([\w-]*) *$")
COMMENT = re.compile(r"<!-- (.*) -->")
FILE_NAME = re.compile(r"^# ([\w.-]+\.\w+)$")


@dataclass(slots=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    not_run: str = ""
    needs_spark: bool = False
    service: bool = False
    output: str | None = None

    @property
    def where(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def file_name(self) -> str | None:
        match = FILE_NAME.match(self.text.partition("\n")[0])
        return match[1] if match else None


def blocks_of(page: Path) -> list[Block]:
    found: list[Block] = []
    lines = page.read_text().splitlines()
    number = 0
    while number < len(lines):
        fence = FENCE.match(lines[number])
        if fence is None:
            number += 1
            continue
        end = next(at for at in range(number + 1, len(lines)) if lines[at].strip() == "```")
        text = "\n".join(line.removeprefix(fence[1]) for line in lines[number + 1 : end]) + "\n"
        if fence[2] == "output":
            found[-1].output = text
        else:
            block = Block(page, number + 2, fence[2], text)
            _read_comment(block, lines[number - 1] if number else "")
            found.append(block)
        number = end + 1
    return found


def _read_comment(block: Block, line: str) -> None:
    match = COMMENT.fullmatch(line.strip())
    if match is None:
        return
    comment = match[1]
    if comment.startswith("not run: "):
        block.not_run = comment.removeprefix("not run: ")
    elif comment == "needs Spark":
        block.needs_spark = True
    elif comment == "service":
        block.service = True
    else:
        raise ValueError(f"{block.where}: what is <!-- {comment} -->?")
