"""The `millstream` command: Kafka's tools as subcommands, with Kafka's options and Kafka's lines.

    app          finds the subcommand, runs it, turns errors into one line and an exit code
    common       options that all tools share, connecting, the options that are gone
    output       Kafka's lines, or the same facts as json, yaml or a table
    topics, configs, get_offsets, delete_records, dump_log, console_producer, console_consumer: a tool each
    lines_in     text lines into records (console-producer)
    lines_out    records into text lines (console-consumer)

A tool's module is loaded only when the tool is called, and within it the client only when there is something
to do, so that help and completion are quick.
"""
