"""The web console: a server-rendered window on any Kafka-compatible cluster.

It speaks the Kafka protocol and the registry's HTTP API, nothing else, so it shows Apache Kafka as well as
Millstream.

    console_config, users, security  how it is set up, who may log in, and what every request has to pass
    pool                             calls of the synchronous client from the event loop
    cluster_queries                  questions about many partitions or groups in few requests
    sampling, time_series            a thread that samples the cluster every few seconds, and its history
    message_pages, search            pages of messages, the live tail, and searches in child processes
    record_display, masking          bytes as people can read them, without what they must not see
    pages/                           one module per part of the site
    templates/, static/              HTML by Jinja, one style sheet, two scripts, two vendored libraries
"""
