"""The controller's mind: `decide`, a pure and total function from the image and a command to records and a
reply.

Nothing here waits, reads a clock or keeps state. A command that does not (or no longer) apply makes no
records and is answered with Kafka's error code. `driver.py` is the body: it puts the records into the log,
and gives the reply once they are there. `topics`, `configs`, `brokers`, `moves` and `partitions` hold the
rules.
"""

from collections.abc import Callable
from typing import Any

from millstream.cluster.brokers import (
    allocate_producer_ids,
    broker_lost,
    claim_controller,
    register_broker,
    update_features,
)
from millstream.cluster.commands import (
    AllocateProducerIds,
    AlterConfigs,
    AlterPartition,
    AlterReassignments,
    BrokerLost,
    ClaimController,
    Command,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    RegisterBroker,
    SetConfigs,
    UpdateFeatures,
)
from millstream.cluster.configs import alter_configs, set_configs
from millstream.cluster.context import Context, Decision
from millstream.cluster.image import Image
from millstream.cluster.replication_control import alter_partition, alter_reassignments, elect_leaders
from millstream.cluster.topics import create_partitions, create_topics, delete_topics
from millstream.wire.errors import KafkaError

__all__ = ["Context", "Decision", "decide"]

_DECIDERS: dict[type, Callable[[Image, Any, Context], Decision]] = {
    ClaimController: claim_controller,
    RegisterBroker: register_broker,
    BrokerLost: broker_lost,
    CreateTopics: create_topics,
    CreatePartitions: create_partitions,
    DeleteTopics: lambda image, command, _: delete_topics(image, command),
    AlterConfigs: alter_configs,
    SetConfigs: set_configs,
    ElectLeaders: elect_leaders,
    AlterReassignments: alter_reassignments,
    AlterPartition: alter_partition,
    AllocateProducerIds: lambda image, command, _: allocate_producer_ids(image, command),
    UpdateFeatures: update_features,
}


def decide(image: Image, command: Command[Any], context: Context) -> Decision:
    """What a command comes to. A reply that is a `KafkaError` is raised in the caller."""
    try:
        return _DECIDERS[type(command)](image, command, context)
    except KafkaError as problem:
        return Decision((), problem)
