"""Running a topology on Spark, against a cluster.

from millstream.streams.runtime import Streams

Streams(topology, "my-application", bootstrap_servers="localhost:9092").start().awaitTermination()

application   the user's end: internal topics, the Spark query
topics        how many partitions internal topics have
aligned       where batches of several topics end
reader        the data source that Spark sees: offsets on the driver, work in the tasks
work          what goes between driver and tasks
worker        one task on one range of offsets: state, operators, one transaction
queries       the rows of stores over HTTP
"""

from millstream.streams.runtime.application import Streams

__all__ = ["Streams"]
