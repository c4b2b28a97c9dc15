"""A small synchronous client of the Kafka protocol, for tools and for Spark tasks.

It works with batches, not records: what it fetches are views of whole record batches, what it produces are
batches ready to send, so a caller that decodes natively never pays for a Python object per record. It keeps
no global state, a `ClientConfig` can be pickled, and opening a connection costs two round trips.

    config       where the cluster is and how long to wait
    security     TLS and SASL settings; `tls` and `sasl` do what they say
    connection   one broker: frames, correlation ids, versions that both sides know
    cluster      all brokers: who leads what, and trying again when that changes
    cluster_cache  clusters that outlive the work that needed them
    producer     batches into partitions, with producer ids and sequences (idempotent)
    transactional  the same inside a transaction, which another process may end
    fetch        batches out of partitions
    offsets      earliest, latest, by timestamp
    admin        topics, settings, records, log folders
    groups       consumer groups as administrators see them
    membership   one member of a group, in one thread
    transactions transactions as administrators see them

Everything that goes wrong is a KafkaError.
"""

from millstream.client.admin import Admin, NewTopic
from millstream.client.cluster import Cluster
from millstream.client.config import ClientConfig
from millstream.client.connection import Connection
from millstream.client.errors import TimedOut, Unreachable
from millstream.client.fetch import Fetched, Fetcher, visible_batches
from millstream.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, Offset, list_offsets
from millstream.client.producer import Producer, Sent
from millstream.client.transactional import TransactionalProducer

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "Admin",
    "ClientConfig",
    "Cluster",
    "Connection",
    "Fetched",
    "Fetcher",
    "NewTopic",
    "Offset",
    "Producer",
    "Sent",
    "TimedOut",
    "TransactionalProducer",
    "Unreachable",
    "list_offsets",
    "visible_batches",
]
