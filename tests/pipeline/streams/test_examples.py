"""The examples of examples/streams: each runs by itself and prints what its text says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "examples" / "streams"

PRINTED = {
    "upper_case": "1 HELLO\n2 MILL\n",
    "word_count": "all        2\nstreams    2\nlead       1\nto         1\nkafka      1\njoin       1\n",
    "pageviews_by_region": "asia@0 min      1\neurope@0 min    2\neurope@1 min    1\n",
    "clicks_and_users": "Alice, shoes: clicked\nb, hats: ignored\n",
    "sum_six_or_five": "as a stream: 6\nas a table:  5\n",
    "orders": (
        "event   o1 placed\nevent   o2 placed\nevent   o1 paid\nevent   o2 paid\nevent   o2 refused\nevent   o1 cancelled\n"
        "order   o1 cancelled ute 30\norder   o2 paid ute 12\n"
        "revenue ute 30\nrevenue ute 42\nrevenue ute 42\nrevenue ute 12\n"
    ),
    "plant": (
        "alerts-error    battery  Battery assembly: no cells left\n"
        "alerts-warning  frame    Frame welding: 81 degrees\n"
        "alerts-warning  frame    Frame welding: 90 degrees\n"
        "alerts-warning  frame    Frame welding: 100 degrees\n"
        "alerts-warning  battery  Battery assembly: slow\n"
        "alerts-warning  frame    Frame welding: next shift\n"
        "trends          battery  fine\n"
        "trends          frame    too many warnings\n"
    ),
}


def test_every_example_is_here() -> None:
    assert {file.stem for file in FOLDER.glob("*.py")} - {"run"} == PRINTED.keys()


@pytest.mark.parametrize("name", PRINTED)
def test_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out == PRINTED[name]
