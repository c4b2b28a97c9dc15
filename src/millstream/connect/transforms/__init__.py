"""Single message transforms and predicates: Kafka's own, by Kafka's class names and their short aliases."""
