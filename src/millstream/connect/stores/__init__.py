"""What a cluster of workers knows, in Kafka's three topics and formats: configurations, offsets, states."""
