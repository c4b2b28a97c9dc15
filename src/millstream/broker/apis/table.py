"""The table of APIs: every family of requests, and what of it this broker serves.

Those between brokers are not served by a broker that is alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.broker.apis.acls import AclsApi
from millstream.broker.apis.alter_partition import AlterPartitionApi
from millstream.broker.apis.api_versions import ApiVersionsApi
from millstream.broker.apis.assign_replicas_to_dirs import AssignReplicasToDirsApi
from millstream.broker.apis.client_quotas import ClientQuotasApi
from millstream.broker.apis.cluster import ClusterApi
from millstream.broker.apis.configs import ConfigsApi
from millstream.broker.apis.consumer_groups import ConsumerGroupsApi
from millstream.broker.apis.delegation_tokens import DelegationTokensApi
from millstream.broker.apis.describe_transactions import DescribeTransactionsApi
from millstream.broker.apis.envelope import EnvelopeApi
from millstream.broker.apis.group_offsets import GroupOffsetsApi
from millstream.broker.apis.groups import GroupsApi
from millstream.broker.apis.log_dirs import LogDirsApi
from millstream.broker.apis.metadata import MetadataApi
from millstream.broker.apis.partition_offsets import PartitionOffsetsApi
from millstream.broker.apis.reassignments import ReassignmentsApi
from millstream.broker.apis.sasl import SaslApi
from millstream.broker.apis.scram_credentials import ScramCredentialsApi
from millstream.broker.apis.telemetry import TelemetryApi
from millstream.broker.apis.topics import TopicsApi
from millstream.broker.apis.transactions import TransactionsApi
from millstream.broker.network.dispatch import Api

if TYPE_CHECKING:
    from millstream.broker.server import Broker


def serve_apis(broker: Broker) -> None:
    broker.produce.api = Api(0, "Produce", 3, 13, raw=broker.produce.handle, advertised_from=0)
    broker.fetch.api = Api(1, "Fetch", 4, 18, raw=broker.fetch.handle)
    broker.dispatcher.serve(broker.produce.api)
    broker.dispatcher.serve(broker.fetch.api)
    for family in (
        ApiVersionsApi,
        MetadataApi,
        TopicsApi,
        ReassignmentsApi,
        ConfigsApi,
        PartitionOffsetsApi,
        LogDirsApi,
        TransactionsApi,
        DescribeTransactionsApi,
        GroupsApi,
        GroupOffsetsApi,
        ConsumerGroupsApi,
        AclsApi,
        ClientQuotasApi,
        DelegationTokensApi,
        ClusterApi,
        EnvelopeApi,
        AlterPartitionApi,
        AssignReplicasToDirsApi,
        SaslApi,
        ScramCredentialsApi,
    ):
        for api in family(broker).apis():
            if not (api.between_brokers and broker.alone):
                broker.dispatcher.serve(api)
    for api in broker.coordinators.apis():
        broker.dispatcher.serve(api)
    if broker.telemetry is not None:
        for api in TelemetryApi(broker.telemetry, broker.dispatcher).apis():
            broker.dispatcher.serve(api)
