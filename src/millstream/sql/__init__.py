"""ksqlDB's language: statements become Streams topologies."""
