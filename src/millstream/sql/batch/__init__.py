"""BATCH statements: Spark SQL over the whole history of topics, from the same shell and REST API.

    spark_types  between SQL's types and Spark's
    source       format("millstream_sql"): a topic with the columns that CREATE STREAM or TABLE has given it
    driver       the process with Spark: runs queries, sends rows
    client       in the server: starts the driver with the first query, lets it go when it is idle

A stream is all of its records, a table the newest one of each key. Spark plans and runs the rest, so that
subqueries, window functions, any join and files and databases work as Spark users know them.
"""
