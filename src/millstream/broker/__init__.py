"""The broker: serves partition logs over TCP in Kafka's protocol. One process, one event loop."""
