"""The harness itself: it finds the blocks and what is said about them, and fails where a page is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import blocks_of
from tests.docs.running import PageRun

PAGE = """
<!-- not run: too long -->
```bash
sleep 1000
```
<!-- needs Spark -->
```python
print(1)
```
```output
1
```
```python
# orders.py
x = 1
```
"""


def _page(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text)
    return page


def _run(folder: Path, text: str) -> None:
    run = PageRun(folder, 20_000)
    for block in blocks_of(_page(folder, text)):
        run.run(block)


def test_blocks_and_what_is_said_about_them(tmp_path: Path) -> None:
    waiting, spark, file = blocks_of(_page(tmp_path, PAGE))
    assert (waiting.not_run, waiting.language, waiting.where) == ("too long", "bash", "page.md:4")
    assert spark.needs_spark
    assert spark.output == "1\n"
    assert file.file_name == "orders.py"


def test_a_comment_that_nobody_understands(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nod run"):
        blocks_of(_page(tmp_path, "<!-- nod run: x -->\n```bash\n```\n"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```bash\necho bell\n```\n```output\nsaddle\n```\n", "the page says"),
        ("```bash\nfalse\necho bell\n```\n", "ended with 1"),
        ("```bash\nfalse | cat\n```\n", "ended with 1"),
        ("```python\nprint(2)\n```\n```output\n1\n```\n", "the page says"),
        ("```\nmillstream up\n```\n", "nobody knows how to run"),
    ],
)
def test_a_wrong_page_fails(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        _run(tmp_path, text)


def test_a_right_page(tmp_path: Path) -> None:
    _run(
        tmp_path,
        "```python\n# orders.py\namount = 3\n```\n"
        "```bash\npython -c 'import orders; print(orders.amount)'\n```\n```output\n3\n```\n"
        "```python\ntotal = 1\n```\n```python\nprint(total + 1, 'bells')\n```\n```output\n2 b...\n```\n",
    )


def test_only_hosts_and_ports_are_replaced(tmp_path: Path) -> None:
    run = PageRun(tmp_path, 20_000)
    text = "curl http://localhost:8081/subjects  # 127.0.0.1:9092, broker1:9092, localhost:1234"
    moved = "curl http://127.0.0.1:20001/subjects  # 127.0.0.1:20000, broker1:9092, localhost:1234"
    assert run.with_ports(text) == moved
