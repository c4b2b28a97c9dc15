"""The web console: a server-rendered window on any Kafka-compatible cluster.

It speaks the Kafka protocol and the registry's HTTP API, nothing else, so it shows Apache Kafka as well as
Millstream.

    settings, users, security   how it is set up, who may come in, and what every request has to pass
    pool                        calls of the synchronous client out of the event loop, each with a cluster of its own
    sampling, series            a thread that looks at the cluster every few seconds, and what it remembers
    reading, search             pages of messages, the live tail, and searches in child processes
    showing, masking            bytes as people can read them, without what they must not see
    pages/                      one module per part of the site
    templates/, static/         HTML by Jinja, one style sheet, one script, and the two vendored libraries
"""
