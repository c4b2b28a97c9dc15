"""Millstream: the Kafka platform as one pip install."""

__version__ = "0.1.0"
