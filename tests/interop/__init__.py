"""Other people's clients against the broker, and, with --against kafka, against Apache Kafka: the same
tests."""
