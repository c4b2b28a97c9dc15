"""A persistent query on Spark: the statement travels to the driver child and its lanes, and is compiled
there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sql.server.sql_client import RunningSql


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
