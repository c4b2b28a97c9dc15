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
