"""A persistent query on Spark: the statement travels to the driver child and its lanes, and is compiled
there."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.sql.server.sql_config import SqlConfig
from tests.sql.server.sql_client import RunningSql
from tests.support.waiting import wait_until


def test_settings_of_spark_reach_the_driver() -> None:
    given = {"bootstrap.servers": "localhost:1", "spark.master": "local[3]", "millstream.host.lanes": "2"}
    config = SqlConfig({**given, "ksql.batch.spark.master": "local[1]"})
    assert config.host_settings() == {"spark.master": "local[3]", "spark.millstream.host.lanes": "2"}
    assert config.spark_settings() == {"spark.master": "local[1]"}


@pytest.mark.spark
def test_a_query_runs_in_lanes_on_spark(bootstrap: str, tmp_path: Path, name: str) -> None:
    with RunningSql(bootstrap, tmp_path, {"ksql.host.local": "false"}) as sql:
        sql.ksql(
            f"CREATE STREAM S (K STRING KEY, V DECIMAL(4, 2)) "
            f"WITH (kafka_topic='{name}', value_format='JSON', partitions=2);"
        )
        sql.ksql(
            f"CREATE TABLE T WITH (kafka_topic='{name}_T') AS "
            "SELECT K, COUNT(*) AS N, SUM(V) AS TOTAL FROM S WHERE V > 0 GROUP BY K;"
        )
        for value in (1.5, -2, 2.25):
            sql.ksql(f"INSERT INTO S VALUES ('a', {value});")
        sql.wait_for_rows("SELECT * FROM T;", [["a", 2, 3.75]])


FUNCTIONS = """
import os, time
from millstream.sql.functions import udf

@udf("(INT x) -> INT")
def endless(x):
    while x == 2:
        time.sleep(0.01)
    return x

@udf("(INT x) -> INT")
def deadly(x):
    if x == 2:
        os._exit(3)
    return x
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_functions_that_loop_or_end_their_process_fail_their_own_query(
    bootstrap: str, tmp_path: Path, name: str
) -> None:
    module = tmp_path / "unsound.py"
    module.write_text(FUNCTIONS)
    settings = {
        "ksql.host.local": "false",
        "ksql.udf.module": module,
        "millstream.host.unit.timeout.ms": 2000,
        "millstream.host.lanes": 3,
    }
    with RunningSql(bootstrap, tmp_path / "state", settings) as sql:
        sql.ksql(
            f"CREATE STREAM S (K STRING KEY, X INT) "
            f"WITH (kafka_topic='{name}', value_format='JSON', partitions=1);"
        )
        for sink, expression in (("SOUND", "X"), ("LOOPS", "ENDLESS(X)"), ("ENDS", "DEADLY(X)")):
            sql.ksql(
                f"CREATE STREAM {sink} WITH (kafka_topic='{name}_{sink}') AS "
                f"SELECT K, {expression} AS X FROM S;"
            )
        sql.ksql("INSERT INTO S VALUES ('a', 1);")
        for sink in ("SOUND", "LOOPS", "ENDS"):
            sql.wait_for_rows(f"SELECT X FROM {sink};", [[1]])
        sql.ksql("INSERT INTO S VALUES ('b', 2);")

        def errors() -> dict[str, tuple[str, str]]:
            found = sql.ksql("SHOW QUERIES;")[0]["queries"]
            return {
                query["sinks"][0]: (query["state"], str(sql.ksql(f"EXPLAIN {query['id']};")[0]))
                for query in found
            }

        wait_until(
            lambda: [errors()[sink][0] for sink in ("LOOPS", "ENDS")] == ["ERROR", "ERROR"],
            lambda: str(errors()),
        )
        said = errors()
        assert "did not come back within 2 s" in said["LOOPS"][1]
        assert "its process has ended" in said["ENDS"][1]
        # Nobody else has noticed.
        assert said["SOUND"][0] == "RUNNING"
        sql.ksql("INSERT INTO S VALUES ('c', 3);")
        sql.wait_for_rows("SELECT X FROM SOUND;", [[1], [2], [3]])
        assert sorted(sql.rows("SELECT X FROM ENDS;")) == [[1]]
