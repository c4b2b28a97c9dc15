"""What Kafka's own classes answered to every case of `cases.py`, ours answer too."""

from __future__ import annotations

import base64
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from millstream.connect.converters.plugins import make_converter
from millstream.connect.data.value_parser import parse_string
from millstream.connect.data.values import convert_to_string
from millstream.connect.errors import ConnectError
from millstream.connect.plugins import find_connector
from millstream.connect.transforms.plugins import make_predicate, make_transform
from millstream.connect.validation import body, validate
from tests.connect.cases import Case
from tests.connect.tagged import SCHEMAS, both, from_record, normal, to_record, to_value
from tests.connect.validations import compact

FOLDER = Path(__file__).with_name("vectors")

# Java's own words for a null pointer, a class cast or an index: ours say what is missing.
JAVA_ONLY = (
    "java.lang.NullPointerException",
    "java.lang.ClassCastException",
    "java.lang.NumberFormatException",
    "java.lang.IndexOutOfBoundsException",
)
# Python's calendar ends there; Java's goes on.
YEARS = "is outside of the years 1 to 9999"


def perform(case: Case) -> Any:
    what = case["do"]
    if what == "transform":
        return from_record(make_transform(case["class"], case["config"]).apply(to_record(case["record"])))
    if what == "predicate":
        return make_predicate(case["class"], case["config"]).test(to_record(case["record"]))
    if what == "parse":
        return both(parse_string(case["text"]))
    schema = SCHEMAS.schema_from_json(case.get("schema"))
    if what == "text":
        return convert_to_string(to_value(schema, case["value"]), schema)
    converter = make_converter(case["class"], case.get("config", {}))
    if what in ("from_connect", "from_header"):
        data = converter.from_connect("t", schema, to_value(schema, case["value"]))
        return None if data is None else base64.b64encode(data).decode()
    data = None if case["data"] is None else base64.b64decode(case["data"])
    return both(converter.to_connect("t", data))


def difference(case: Case) -> str | None:
    """What ours does otherwise than Kafka, in a line; None if nothing."""
    failure = case.get("error")
    try:
        found = perform(case)
    except ConnectError as error:
        if failure is None:
            return None if YEARS in str(error) else f"error {error} instead of {case['out']}"
        if failure["class"] in JAVA_ONLY or "fromIndex" in failure["message"]:
            return None
        if type(error).java_class != failure["class"]:
            return f"{type(error).java_class}: {error} instead of {failure}"
        return (
            None
            if same_message(str(error), failure["message"])
            else f"{error} instead of {failure['message']}"
        )
    if failure is not None:
        return f"{found} instead of error {failure}"
    expected = case["out"]
    if expected is None and case["do"] in ("parse", "to_header"):
        expected = {"schema": None, "value": None}
    return None if normal(found) == normal(expected) else f"{found} instead of {case['out']}"


def same_message(ours: str, kafkas: str) -> bool:
    """Except for what only Java says: an exception inside the text, an object's address, a compiler."""
    if "Invalid regex" in kafkas:
        return "Invalid regex" in ours
    if "@" in kafkas:
        return ours.rpartition(":")[0] == kafkas.rpartition(":")[0]
    return ours == kafkas or (" java.lang." in kafkas and kafkas.endswith(ours))


def same_settings(ours: dict[str, Any], kafkas: dict[str, Any]) -> list[str]:
    """What differs of two validations, setting by setting. Each says in its own words what is wrong with a
    pattern."""

    def said(one: dict[str, Any], name: str) -> Any:
        *definition, errors, visible = one["configs"].get(name, [[], None])
        return definition, [error.partition("Invalid regex: ")[0] for error in errors], visible

    names = ours["configs"].keys() | kafkas["configs"].keys()
    return [
        f"{name}: {ours['configs'].get(name)} instead of {kafkas['configs'].get(name)}"
        for name in sorted(names)
        if said(ours, name) != said(kafkas, name)
    ]


def test_validation_like_kafkas_workers() -> None:
    lines = gzip.decompress((FOLDER / "validation.jsonl.gz").read_bytes()).splitlines()
    cases = [json.loads(line) for line in lines]
    assert len(cases) > 300
    worker = {
        "key.converter": "StringConverter",
        "value.converter": "StringConverter",
        "header.converter": "SimpleHeaderConverter",
    }
    wrong = []
    for case in cases:
        connector = find_connector(case["settings"]["connector.class"])
        found = compact(body(connector, validate(connector, case["settings"], worker)))
        if case.get("status") == 500:
            continue  # Kafka's worker stumbles there; ours says something
        different = same_settings(found, case["out"])
        if found["error_count"] != case["out"]["error_count"]:
            different.append(f"{found['error_count']} errors instead of {case['out']['error_count']}")
        if different:
            wrong.append((case["settings"], different))
    for settings, different in wrong[:20]:
        print(json.dumps(settings), *different, sep="\n   ")
    assert not wrong, f"{len(wrong)} of {len(cases)} configurations differ"


@pytest.mark.parametrize(
    "name", ["cast", "timestamps", "transforms", "fields", "values", "converters", "debezium"]
)
def test_like_kafkas_classes(name: str) -> None:
    lines = gzip.decompress((FOLDER / f"{name}.jsonl.gz").read_bytes()).splitlines()
    # Numbers as the converters read them.
    cases = [json.loads(line, parse_float=Decimal) for line in lines]
    assert len(cases) > 300
    wrong = [(case, text) for case in cases if (text := difference(case)) is not None]
    for case, text in wrong[:20]:
        what = {key: value for key, value in case.items() if key not in ("out", "error")}
        print(json.dumps(what, default=float), "\n   ", text)
    assert not wrong, f"{len(wrong)} of {len(cases)} cases differ"
