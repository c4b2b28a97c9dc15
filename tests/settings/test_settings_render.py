from pathlib import Path

from millstream.settings.config_def import BROKER, TOPIC
from millstream.settings.properties import parse_properties
from millstream.settings.render import main, reference_page, server_properties
from millstream.settings.resolve import BrokerSettings

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def test_files_in_docs_are_up_to_date(tmp_path: Path) -> None:
    main(str(tmp_path))
    for name in ("settings.md", "server.properties"):
        fresh = (tmp_path / name).read_text(encoding="utf-8")
        kept = (REFERENCE / name).read_text(encoding="utf-8")
        assert fresh == kept, "run: python -m millstream.settings.render docs/reference"


def test_the_commented_file_sets_nothing() -> None:
    assert parse_properties(server_properties()) == {}


def test_uncommented_it_says_what_the_broker_does_anyway() -> None:
    lines = [
        line[1:]
        for line in server_properties().splitlines()
        if line.startswith("#") and line[1:].partition("=")[0] in BROKER and not line.endswith("=")
    ]
    given = parse_properties("\n".join(lines))
    del given["security.inter.broker.protocol"]
    settings, plain = BrokerSettings(given), BrokerSettings()
    assert len(given) > 80
    for name in BROKER:
        assert settings.value(name) == plain.value(name), name
    assert settings.default_log_config == plain.default_log_config


def test_page_has_every_setting_once() -> None:
    page = reference_page()
    for name, setting in (*BROKER.items(), *TOPIC.items()):
        expected = (name in BROKER) + (name in TOPIC and not TOPIC[name].hidden)
        assert page.count(f"\n| `{name}` |") == expected, setting
