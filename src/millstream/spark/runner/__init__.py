"""Running pipelines: what stands behind `millstream pipeline`.

    app        a user's file: its function `pipeline(spark, settings)` and what it may return
    records    the records of the topic `__millstream_pipelines`: state and progress of every pipeline, and commands to it
    book       writing and reading that topic
    groups     offsets of a consumer group for every query, so that its lag shows
    client     the runner's way to the brokers as options for the pipeline
    progress   Spark's progress reports as numbers that people ask for
    queries    starting, watching, restarting and stopping the Spark queries of one pipeline
    sinks      mistakes in a writer, before it is started
    run        one process: sessions, signals, reports, until all pipelines have ended
    screen     the terminal: a live table, or lines where nobody looks

Everything about a pipeline that others need is in the topic. The console and `millstream pipeline list|describe|stop` use nothing
else, so they work from any machine.
"""
