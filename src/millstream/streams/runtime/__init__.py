"""Running a topology on Spark, against a cluster.

application       `Streams`, the user's end: internal topics, the Spark query
topics            how many partitions internal topics have
aligned           where batches of several topics end
reader            the data source that Spark sees: offsets on the driver, tasks on the workers
assignments       what goes between driver and tasks
worker            one task on one range of offsets: state, operators, one transaction
topic_reader      committed records of topics, in blocks
record_collector  what a task sends, as record batches
queries           the rows of stores over HTTP
"""

from millstream.streams.runtime.application import Streams

__all__ = ["Streams"]
