from pathlib import Path

from millstream.connect.config.render import main, reference_page
from millstream.connect.plugins import CONNECTORS, class_name_of, find_connector, load

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def test_the_page_is_up_to_date(tmp_path: Path) -> None:
    main(str(tmp_path))
    kept = (REFERENCE / "connectors.md").read_text(encoding="utf-8")
    assert (tmp_path / "connectors.md").read_text(encoding="utf-8") == kept, "run: make docs"


def test_the_page_has_every_connector_and_setting() -> None:
    page = reference_page()
    for name in CONNECTORS:
        assert f"`{name}`" in page
        for setting in load(name).config.keys:
            assert f"| `{setting}` |" in page


def test_every_name_of_a_connector_selects_it() -> None:
    for name in CONNECTORS:
        short = name.rpartition(".")[2]
        assert find_connector(name) is load(name)
        assert find_connector(short).__module__ == load(name).__module__
        assert CONNECTORS[class_name_of(load(name))] == CONNECTORS[name]
