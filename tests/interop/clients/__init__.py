"""Other people's Kafka clients behind one small face, so that one test runs with each of them.

What only one client can do is tested in a file of its own (test_confluent.py and so on).
"""

from .aio import AioKafka
from .base import Client, Config, Record, Refused
from .confluent import Confluent
from .kafka_python import KafkaPython

CLIENTS: dict[str, type[Client]] = {client.name: client for client in (Confluent, KafkaPython, AioKafka)}

__all__ = ["CLIENTS", "AioKafka", "Client", "Config", "Confluent", "KafkaPython", "Record", "Refused"]
