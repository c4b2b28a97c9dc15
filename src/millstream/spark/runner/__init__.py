"""Running pipelines: what stands behind `millstream pipeline`.

    pipeline_file     a user's file: its function `pipeline(spark, settings)` and what it may return
    status_records    the records of `__millstream_pipelines`: state and progress of every pipeline, and
                      commands to it
    status_topic      writing and reading that topic
    progress          Spark's progress reports as numbers that people ask for
    progress_groups   offsets of a consumer group for every query, so that its lag shows
    client_options    the runner's own client configuration as options for the pipeline
    queries           starting, watching, restarting and stopping the Spark queries of one pipeline
    sink_check        mistakes in a writer, before it is started
    run               one process: sessions, signals, reports, until all pipelines have ended
    screen            the terminal: a live table, or plain lines where the output is no terminal

Everything about a pipeline that others need is in the topic. The console and `millstream pipeline
list|describe|stop` use nothing else, so they work from any machine.
"""
