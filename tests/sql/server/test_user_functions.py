"""Functions and models in Python, in queries of a running server."""

from __future__ import annotations

from pathlib import Path

from tests.sql.server.sql_client import RunningSql

MODULE = """
from millstream.sql.functions import model, udf

class Scale:
    def predict(self, rows):
        return [row[0] * 2 + row[1] for row in rows]

model("score", "(DOUBLE a, DOUBLE b) -> DOUBLE", Scale(), doc="Twice a, and b.")

@udf("(INT x) -> INT")
def shaky(x):
    if x == 2:
        raise ValueError("two")
    return x
"""


def test_a_model_scores_in_persistent_push_and_pull_queries(
    bootstrap: str, tmp_path: Path, name: str
) -> None:
    module = tmp_path / "scoring.py"
    module.write_text(MODULE)
    with RunningSql(bootstrap, tmp_path / "state", {"ksql.udf.module": module}) as sql:
        sql.ksql(
            f"CREATE STREAM S (K STRING KEY, A DOUBLE, B DOUBLE, X INT) WITH (kafka_topic='{name}', "
            "value_format='JSON', partitions=1);"
        )
        sql.ksql(
            f"CREATE STREAM SCORED WITH (kafka_topic='{name}_S') AS SELECT K, SCORE(A, B) AS R, "
            "SHAKY(X) AS X FROM S;"
        )
        sql.ksql("INSERT INTO S VALUES ('a', 1, 2, 1); INSERT INTO S VALUES ('b', 3, 4, 2);")
        sql.wait_for_rows("SELECT K, R, X FROM SCORED;", [["a", 4.0, 1], ["b", 10.0, None]])
        assert sql.rows("SELECT K FROM S WHERE SCORE(A, B) > 5 EMIT CHANGES LIMIT 1;") == [["b"]]
        (described,) = sql.ksql("DESCRIBE FUNCTION SCORE;")
        assert described["description"] == "Twice a, and b."


def test_a_module_that_is_not_there_is_named(bootstrap: str, tmp_path: Path) -> None:
    try:
        RunningSql(bootstrap, tmp_path, {"ksql.udf.module": tmp_path / "gone.py"}).start()
    except RuntimeError as error:
        assert "gone.py" in str(error) and "Traceback" not in str(error)
    else:
        raise AssertionError("it started")


UNSOUND = """
import os, time
from millstream.sql.functions import udaf, udf

@udf("(INT x) -> INT")
def endless(x):
    while x == 2:
        time.sleep(0.01)
    return x

@udf("(INT x) -> INT")
def deadly(x):
    print("a function may print")
    if x == 2:
        os._exit(3)
    if x == 3:
        raise ValueError("three")
    return x

@udaf("(INT x) -> INT", state="INT")
class product:
    def initial(self):
        return 1
    def add(self, state, x):
        return state * x
    def merge(self, one, other):
        return one * other
"""
EARLIEST = {"auto.offset.reset": "earliest"}


def test_functions_that_loop_or_end_their_process_end_only_their_query(
    bootstrap: str, tmp_path: Path, name: str
) -> None:
    module = tmp_path / "unsound.py"
    module.write_text(UNSOUND)
    settings = {"ksql.udf.module": module, "ksql.udf.timeout.ms": 2000}
    with RunningSql(bootstrap, tmp_path / "state", settings) as sql:
        options = f"WITH (kafka_topic='{name}', value_format='JSON', partitions=1)"
        sql.ksql(
            f"CREATE TABLE W (K STRING PRIMARY KEY, X INT) {options};"
            f"CREATE SOURCE TABLE T (K STRING PRIMARY KEY, X INT) {options};"
            f"CREATE STREAM S (K STRING KEY, X INT) {options};"
        )
        for number in (1, 2, 3):
            sql.ksql(f"INSERT INTO W VALUES ('k{number}', {number});")
        for function, words in (
            ("ENDLESS", "function endless did not come back within 2 s"),
            ("DEADLY", "function deadly ended its process (status 3)"),
        ):
            for _ in range(2):  # the second time it has a plan
                *rows, last = sql.rows(f"SELECT {function}(X) AS Y FROM T WHERE K = 'k2';")
                assert rows == [] and words in last["message"].casefold()
                assert sql.rows(f"SELECT {function}(X) AS Y FROM T WHERE K = 'k1';") == [[1]]
            *rows, last = sql.rows(f"SELECT {function}(X) AS Y FROM S EMIT CHANGES;", **EARLIEST)
            assert rows == [[1]] and words in last["message"].casefold()
            refused = sql.refused(f"INSERT INTO S VALUES ('k4', {function}(2));")
            assert words in refused["message"].casefold()
        assert sql.rows("SELECT DEADLY(X) AS Y FROM T WHERE K = 'k3';") == [[None]]
        found = sql.rows("SELECT PRODUCT(X) AS P FROM S EMIT CHANGES LIMIT 3;", **EARLIEST)
        assert found == [[1], [2], [6]]
