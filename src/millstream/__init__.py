"""Millstream: the Kafka platform as one pip install. The version stands here alone: the build reads it."""

__version__ = "0.1.0"
