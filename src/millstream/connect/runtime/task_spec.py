"""What a task is made of, in plain values: it travels to the process that runs it."""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.client import ClientConfig
from millstream.connect.runtime.client_settings import consumer_group
from millstream.connect.runtime.redrive import Redrive


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """`settings` are the connector's, `task` those that it dealt to this task; both may refer to secrets,
    which `providers` resolve where the task runs. `tasks` is how many there are, this one included."""

    group: str
    connector: str
    number: int
    tasks: int
    client: ClientConfig
    settings: dict[str, str]
    task: dict[str, str]
    worker: dict[str, str]
    providers: dict[str, str] = field(default_factory=dict)
    plugin_path: tuple[str, ...] = ()
    offsets_topic: str | None = None
    offsets_file: str | None = None
    exactly_once: bool = True
    redrive: Redrive | None = None
    """The dead letters that this task of a sink reads again."""

    @property
    def transactional_id(self) -> str:
        """Kafka's own form, so that a Java worker's task would be fenced too."""
        return f"{self.group}-{self.connector}-{self.number}"

    @property
    def consumer_group(self) -> str:
        return consumer_group(self.connector, self.settings)


TOPIC_METRIC = "topic:"
"""Before a topic's name among a unit's metrics: when the task last used it."""
