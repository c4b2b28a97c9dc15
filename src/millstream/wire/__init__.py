"""Bytes to messages and back: record batches, frames and the Kafka messages. No I/O, no clock."""
