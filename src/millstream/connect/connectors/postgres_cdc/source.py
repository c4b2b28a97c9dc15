"""PostgresConnector, under Debezium's name: what is asked of it goes to `Capture`.

That module is imported when a task starts: it needs PostgreSQL's driver, which only its users have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from millstream.connect.api import Settings, SourceConnector, SourceContext, SourceTask
from millstream.connect.config.config_def import ConfigError
from millstream.connect.connectors.postgres_cdc.config import CONFIG
from millstream.connect.data.record import SourceRecord
from millstream.connect.errors import ConnectError

if TYPE_CHECKING:
    from millstream.connect.connectors.postgres_cdc.capture import Capture


class PostgresCdcTask(SourceTask):
    idle_ms = 25.0
    _capture: Capture | None = None

    def start(self, settings: Settings, context: SourceContext) -> None:
        try:
            from millstream.connect.connectors.postgres_cdc.capture import Capture
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"this connector needs {error.name}: pip install 'millstream[postgres]'"
            ) from None
        self._capture = Capture(CONFIG.parse(settings), context, PostgresCdcSource.version)

    def poll(self) -> Sequence[SourceRecord]:
        assert self._capture is not None
        return self._capture.poll()

    def committed(self) -> None:
        if self._capture is not None:
            self._capture.committed()

    def stop(self) -> None:
        if self._capture is not None:
            self._capture.stop()


class PostgresCdcSource(SourceConnector):
    task = PostgresCdcTask
    config = CONFIG
    version: ClassVar[str] = "3.0.0.Final"

    def alter_offsets(self, offsets: Sequence[Mapping[str, Any]]) -> bool:
        for entry in offsets:
            partition = entry.get("partition")
            if not isinstance(partition, dict) or set(partition) != {"server"}:
                raise ConnectError("Partition objects should contain the key 'server' alone")
            if entry.get("offset") is not None:
                raise ConnectError("Offsets in PostgreSQL's log cannot be set; null takes a new snapshot")
        return True
