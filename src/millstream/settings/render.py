"""The table as text for people: a commented server.properties and the reference page.

`python -m millstream.settings.render docs/reference` writes both; a test keeps them up to date.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from millstream.settings.config_def import DIFFERENT, SECTIONS, TOPIC
from millstream.settings.config_key import ConfigKey, Synonym
from millstream.settings.values import Type

_PROPERTIES_HEAD = """\
# Settings of a Millstream broker, with their defaults.
#
# Names and meanings are Apache Kafka's unless they begin with millstream. To change one, remove its #.
# The format is Java's: key=value, a backslash at the end of a line continues it. Start the broker with
#
#     millstream broker --config server.properties [--set key=value ...]
#
# where --set wins over this file. Types, ranges and what can change at run time: docs/reference/settings.md
"""

_PAGE_HEAD = """\
# Settings

<!-- Made from src/millstream/settings by `python -m millstream.settings.render docs/reference`. -->

Names, types and defaults are Apache Kafka's (4.2), so a `server.properties` written for Kafka works. The
first of these that gives a value wins:

1. the topic itself (topic settings only): `millstream topics --create --config`,
   `millstream configs --entity-type topics`
2. this broker's dynamic settings: `millstream configs --entity-type brokers --entity-name 1`
3. the dynamic defaults of all brokers: `millstream configs --entity-type brokers --entity-default`
4. the broker's command line (`--set key=value`), then its file (`--config server.properties`)
5. the default

`millstream configs --describe --all` shows which one it was. Every setting here is read, checked and shown.
A name that is not here is ignored with a message, as in Kafka.

**Change** says how a broker setting can change: *restart* only, *broker* (while it runs, for one broker) or
*cluster* (while it runs, for one broker or all). A topic setting can change at any time and counts at once.

Most broker settings about connections and security can be given for one listener with the prefix
`listener.name.<name in lower case>.`; that value then comes before the general one.
"""

_CHANGE = {"read-only": "restart", "per-broker": "broker", "cluster-wide": "cluster"}
_UNITS = {60_000: " minutes", 3_600_000: " hours"}


def server_properties() -> str:
    """A commented file with every setting that does something, at its default."""
    parts = [_PROPERTIES_HEAD]
    for heading, settings in SECTIONS:
        shown = [setting for setting in settings if not setting.hidden and not setting.no_effect]
        if not shown:
            continue
        parts.append(f"\n############ {heading}\n")
        for setting in shown:
            parts.append("\n" + "".join(f"# {line}\n" for line in textwrap.wrap(_sentence(setting), 108)))
            parts.append(f"#{setting.name}={'' if setting.default is None else setting.default}\n")
    return "".join(parts)


def reference_page() -> str:
    """docs/reference/settings.md."""
    lines = [_PAGE_HEAD, "## Topics", ""]
    lines += _table(
        ("Setting", "Type", "Default", "Values", "Broker setting of the default", "Meaning"),
        (
            (*_columns(setting), ", ".join(map(_synonym, setting.synonyms)), setting.doc)
            for setting in TOPIC.values()
            if not setting.hidden
        ),
    )
    for heading, settings in SECTIONS:
        shown = [setting for setting in settings if not setting.no_effect]
        if shown:
            lines += ["", f"## {heading}", ""]
            lines += _table(
                ("Setting", "Type", "Default", "Values", "Change", "Meaning"),
                ((*_columns(setting), _CHANGE[setting.mode.value], setting.doc) for setting in shown),
            )
    lines += ["", "## Accepted, without effect", ""]
    lines.append(
        "So that a file or a script made for Kafka works. A broker given one of these says so when it starts."
    )
    lines.append("")
    without = (setting for _, settings in SECTIONS for setting in settings if setting.no_effect)
    lines += _table(
        ("Setting", "In Kafka", "Here"),
        ((f"`{setting.name}`", setting.doc, setting.no_effect) for setting in without),
    )
    lines += ["", "## Different from Kafka on purpose", ""]
    lines += [f"- `{name}`: {why}." for name, why in DIFFERENT.items()]
    lines += ["- A `min.cleanable.dirty.ratio` that is not a number is refused."]
    lines += ["", "## Not here", ""]
    lines += textwrap.wrap(
        "Settings of parts that Millstream does not have: tiered storage (`remote.*`, `local.retention.*`), "
        "KRaft (`controller.quorum.*`, `metadata.*`), share groups (`group.share.*`, `share.*`), the "
        "streams group protocol (`group.streams.*`). A broker ignores them with a message; a topic with one "
        "is refused.",
        118,
    )
    return "\n".join(lines) + "\n"


def _sentence(setting: ConfigKey) -> str:
    return f"{setting.doc} ({values})" if (values := _values(setting)) else setting.doc


def _values(setting: ConfigKey) -> str:
    if setting.type is Type.BOOLEAN:
        return "true, false"
    return "" if setting.check is None else str(setting.check)


def _columns(setting: ConfigKey) -> tuple[str, str, str, str]:
    default = "" if setting.default is None else f"`{setting.default}`" if setting.default else "empty"
    return f"`{setting.name}`", setting.type.name.lower(), default, _values(setting)


def _synonym(synonym: Synonym) -> str:
    return f"`{synonym.name}`{_UNITS.get(synonym.factor, '')}"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def main(folder: str) -> None:
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    (target / "settings.md").write_text(reference_page(), encoding="utf-8")
    (target / "server.properties").write_text(server_properties(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
