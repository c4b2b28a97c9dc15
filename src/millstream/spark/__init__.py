"""Topics in Spark: `format("millstream")` for reading and writing, and what a pipeline needs around it.

    datasource   the data source that Spark sees
    options      the names and values of its options, checked
    errors       a mistake is one line
    clusters     the worker's cache of clusters, whose connections outlive a task
    session      a Spark session with settings that suit micro-batches
    class_archive, worker_python, precompile   what makes its next start faster (start_cache is their folder)
    package      what executors need, as one archive
    resources    says aloud that nobody takes Spark's work
    daemon       the parent of Spark's Python workers, with the decoder loaded before it forks
    source       reading: planning offsets into tasks, fetching and decoding in them
    sink         writing

Nothing here is imported by the broker.
"""
