from pathlib import Path

from millstream.sql.functions import FUNCTIONS
from millstream.sql.functions.render import main, reference_page

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


def test_the_page_is_up_to_date(tmp_path: Path) -> None:
    main(str(tmp_path))
    kept = (REFERENCE / "sql-functions.md").read_text(encoding="utf-8")
    fresh = (tmp_path / "sql-functions.md").read_text(encoding="utf-8")
    assert fresh == kept, "run: make docs"


def test_the_page_has_every_overload_once() -> None:
    page = reference_page()
    for row in FUNCTIONS:
        for overload in row.overloads:
            # The result or the end of the code follows.
            text = f"`{overload.text(row.name.upper())}"
            assert page.count(f"{text}`") + page.count(f"{text} ->") == 1, text
