"""Topics in Spark: `format("millstream")` for reading and writing, and what a pipeline needs around it.

    datasource   the data source that Spark sees
    options      the names and values of its options, checked
    errors       a mistake is one line
    clusters     connections that outlive a task, one cache per worker
    session      a Spark session with settings that suit micro-batches
    daemon       the parent of Spark's Python workers, with the decoder loaded before it forks
    source       reading: planning offsets into tasks, fetching and decoding in them
    sink         writing

Nothing here is imported by the broker.
"""
