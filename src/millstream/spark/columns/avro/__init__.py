"""Avro bodies into Arrow columns, by compiled code.

A pair of schemas (who wrote, who reads) becomes a small program, once; a compiled loop runs that program over
all bodies of a batch and fills Arrow's buffers. No Python object per record, and schema evolution costs
nothing at run time.

    types     what an Avro schema looks like as an Arrow (and so a Spark) type
    program   writer's and reader's schema into instructions, by Avro's rules of resolution
    loop      the compiled loop that runs instructions over bodies
    decoder   a batch of bodies through the loop, and its buffers into Arrow arrays
    values    the slow way through fastavro, for unions of several types
"""

from millstream.spark.columns.avro.decoder import AvroDecoder
from millstream.spark.columns.avro.types import AvroSchemas, arrow_type

__all__ = ["AvroDecoder", "AvroSchemas", "arrow_type"]
