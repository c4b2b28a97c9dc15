"""Move the records of a topic to files and back: Parquet, JSON lines or Avro.

command         the options of `millstream topics export` and `millstream topics import`
local_transfer  in this process, for what is too little to start Spark for
record_files    files of records, without Spark
jobs            the Spark jobs, for the rest
avro_files      Avro files by fastavro, also inside of Spark's tasks
"""

from collections.abc import Callable

from millstream.cli.transfer.command import export_topic, import_topic

SUBCOMMANDS: dict[str, Callable[..., int]] = {"export": export_topic, "import": import_topic}
