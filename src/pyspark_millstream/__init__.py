"""Found by Spark itself: it imports top-level modules named `pyspark_*` and registers their `DefaultSource`.

So `spark.read.format("millstream")` works in any session, with nothing to register and no jar.
"""

from millstream.spark.datasource import MillstreamDataSource as DefaultSource

__all__ = ["DefaultSource"]
