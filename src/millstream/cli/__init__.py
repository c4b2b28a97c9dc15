"""The `millstream` command: Kafka's tools as subcommands, with Kafka's options and Kafka's lines.

    app                finds the subcommand, runs it, turns errors into one line and an exit code
    command_table      every command, in the groups of the overview; its module has the command's name
    shared_options     options that all commands share, and the rules between options
    cluster_access     connecting to the cluster that a command, or the profile, names
    profile_store      named clusters: the file, and which one counts now
    output             Kafka's lines, or the same facts as json, yaml or a table
    record_reader      text lines into records (console-producer)
    message_formatter  records into text lines (console-consumer)
    partition_consumer, group_consumer  reading partitions, alone or as a member of a group

A command's module is loaded only when the command is called, and within it the client only when there is
something to do, so that help and completion are quick.
"""
