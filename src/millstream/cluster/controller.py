"""The controller's mind: `decide`, a pure and total function from the image and a command to records and a
reply.

Nothing here waits, reads a clock or keeps state. A command that does not (or no longer) apply makes no
records and is answered with Kafka's error code. `driver.py` is the body: it puts the records into the log,
and gives the reply once they are there. `topics`, `configs`, `brokers`, `moves` and `partitions` hold the
rules; those about ACLs and quotas are in `security`.
"""

from collections.abc import Callable
from typing import Any

from millstream.cluster.brokers import (
    allocate_producer_ids,
    broker_lost,
    claim_controller,
    register_broker,
    unregister_broker,
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
    ReplicasFailed,
    SetConfigs,
    UnregisterBroker,
    UpdateFeatures,
)
from millstream.cluster.configs import alter_configs, set_configs
from millstream.cluster.context import Context, Decision
from millstream.cluster.image import Image
from millstream.cluster.replication_control import (
    alter_partition,
    alter_reassignments,
    elect_leaders,
    replicas_failed,
)
from millstream.cluster.scram import AlterScram, alter_scram
from millstream.cluster.security import (
    alter_accounts,
    alter_quotas,
    create_acls,
    create_token,
    delete_acls,
    expire_token,
    remove_expired_tokens,
    renew_token,
)
from millstream.cluster.security_commands import (
    AlterAccounts,
    AlterQuotas,
    CreateAcls,
    CreateToken,
    DeleteAcls,
    ExpireToken,
    RemoveExpiredTokens,
    RenewToken,
)
from millstream.cluster.topics import create_partitions, create_topics, delete_topics
from millstream.wire.errors import KafkaError

__all__ = ["Context", "Decision", "decide"]

_DECIDERS: dict[type, Callable[[Image, Any, Context], Decision]] = {
    ClaimController: claim_controller,
    RegisterBroker: register_broker,
    BrokerLost: broker_lost,
    UnregisterBroker: unregister_broker,
    CreateTopics: create_topics,
    CreatePartitions: create_partitions,
    DeleteTopics: lambda image, command, _: delete_topics(image, command),
    AlterConfigs: alter_configs,
    SetConfigs: set_configs,
    ElectLeaders: elect_leaders,
    AlterReassignments: alter_reassignments,
    AlterPartition: alter_partition,
    ReplicasFailed: replicas_failed,
    AllocateProducerIds: lambda image, command, _: allocate_producer_ids(image, command),
    UpdateFeatures: update_features,
    AlterScram: lambda image, command, _: alter_scram(image, command),
    CreateAcls: lambda image, command, _: create_acls(image, command),
    DeleteAcls: lambda image, command, _: delete_acls(image, command),
    AlterQuotas: lambda image, command, _: alter_quotas(image, command),
    CreateToken: lambda image, command, _: create_token(image, command),
    RenewToken: lambda image, command, _: renew_token(image, command),
    ExpireToken: lambda image, command, _: expire_token(image, command),
    RemoveExpiredTokens: lambda image, command, _: remove_expired_tokens(image, command),
    AlterAccounts: lambda image, command, _: alter_accounts(image, command),
}


def decide(image: Image, command: Command[Any], context: Context) -> Decision:
    """What a command comes to. A reply that is a `KafkaError` is raised in the caller."""
    try:
        return _DECIDERS[type(command)](image, command, context)
    except KafkaError as problem:
        return Decision((), problem)
