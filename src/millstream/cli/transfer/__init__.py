"""Move the records of a topic to files and back, as Spark jobs: Parquet, JSON lines or Avro.

command     the options of `millstream topics export` and `millstream topics import`
jobs        the Spark jobs
avro_files  Avro files by fastavro, inside of Spark's tasks
"""

from collections.abc import Callable

from millstream.cli.transfer.command import export_topic, import_topic

SUBCOMMANDS: dict[str, Callable[..., int]] = {"export": export_topic, "import": import_topic}
