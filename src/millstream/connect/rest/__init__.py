"""The REST API, with Kafka Connect's paths, bodies and status codes."""
