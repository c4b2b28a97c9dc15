"""The broker as a whole: what it is made of, in which order it starts and stops.

Starting: lock the data folders, bind the listeners (so that the real ports are known), read the metadata log,
open or recover the logs, register, take up the partitions that the image gives us, then begin to accept. Logs
come before the registration, and beside the loop: a recovery of minutes must neither leave partitions without
a leader that works nor outlast the session. Stopping is the reverse: everything is flushed, and the clean
marker is written last.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast
from uuid import UUID, uuid4

from millstream.broker.apis.acls import AclsApi
from millstream.broker.apis.alter_partition import AlterPartitionApi
from millstream.broker.apis.api_versions import SUPPORTED_FEATURES, ApiVersionsApi
from millstream.broker.apis.assign_replicas_to_dirs import AssignReplicasToDirsApi
from millstream.broker.apis.client_quotas import ClientQuotasApi
from millstream.broker.apis.cluster import ClusterApi
from millstream.broker.apis.configs import ConfigsApi
from millstream.broker.apis.consumer_groups import ConsumerGroupsApi
from millstream.broker.apis.delegation_tokens import DelegationTokensApi
from millstream.broker.apis.envelope import EnvelopeApi
from millstream.broker.apis.fetch import FetchHandler
from millstream.broker.apis.fetch_sessions import FetchSessions
from millstream.broker.apis.find_coordinator import GROUP, TRANSACTION, FindCoordinatorApi
from millstream.broker.apis.group_offsets import GroupOffsetsApi
from millstream.broker.apis.groups import GroupsApi
from millstream.broker.apis.leaders import Leaders
from millstream.broker.apis.log_dirs import LogDirsApi
from millstream.broker.apis.metadata import MetadataApi
from millstream.broker.apis.partition_offsets import PartitionOffsetsApi
from millstream.broker.apis.produce import ProduceHandler
from millstream.broker.apis.sasl import SaslApi
from millstream.broker.apis.scram_credentials import ScramCredentialsApi
from millstream.broker.apis.telemetry import TelemetryApi
from millstream.broker.apis.topics import TopicsApi
from millstream.broker.apis.transactions import TransactionsApi
from millstream.broker.coordinators.groups import group_settings
from millstream.broker.coordinators.groups.coordinator import GroupCoordinator
from millstream.broker.coordinators.transactions.coordinator import TransactionCoordinator
from millstream.broker.coordinators.transactions.verification import TransactionVerifier
from millstream.broker.forwarding import Forwarder
from millstream.broker.housekeeping import Housekeeping
from millstream.broker.log_cleaner import LogCleaner
from millstream.broker.log_dir_moves import LogDirMoves
from millstream.broker.network.buffer_budget import BufferBudget
from millstream.broker.network.dispatch import Api, Call, Dispatcher
from millstream.broker.network.listener import Acceptor, Admission, ListenerContext
from millstream.broker.network.poller import Poller
from millstream.broker.partitions import Partitions
from millstream.broker.quotas import Quotas
from millstream.broker.replication.throttle import ReplicationThrottles
from millstream.broker.rights import AUTHORIZERS, CLUSTER, CLUSTER_ACTION, Rights, may, super_users
from millstream.broker.telemetry import subscriptions
from millstream.broker.telemetry.manager import Telemetry, check_subscription
from millstream.broker.tokens import Tokens
from millstream.cluster.brokers import unsupported_feature
from millstream.cluster.commands import FeatureUpdate, UpdateFeatures, UpgradeType
from millstream.cluster.context import Context
from millstream.cluster.driver import Controller
from millstream.cluster.image import Delta, Image
from millstream.cluster.local_store import LocalStore
from millstream.cluster.metadata_records import Endpoint, UnknownMetadata
from millstream.cluster.registration import Registration
from millstream.cluster.store import MetadataStore, StoreError
from millstream.settings.config_def import BROKER, TOPIC
from millstream.settings.listeners import parse_address, parse_listeners
from millstream.settings.log_config import LogConfig
from millstream.settings.resolve import BrokerSettings
from millstream.settings.validate import validate_broker_config
from millstream.settings.values import InvalidSetting, Type, host_limits
from millstream.storage.checkpoints import FormatError
from millstream.storage.log_dirs import LogDirError, LogDirs
from millstream.wire.acls import AclBinding
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.audit.log import Audit
    from millstream.broker.liveness_probe import LivenessProbe
    from millstream.broker.login.inter_broker import InterBrokerSecurity
    from millstream.broker.replication.broker_connection import BrokerConnections
    from millstream.broker.replication.replica_manager import ReplicaManager
    from millstream.broker.security import Security

logger = logging.getLogger("millstream.broker")

METADATA_FOLDER = "millstream-metadata"
NO_LIMIT = 2**31 - 1  # of max.connection.creation.rate
BACKLOG = 1024  # connections that may wait to be accepted, unless a setting says otherwise


class CannotStart(Exception):
    """Why the broker does not start, for the user."""


class Broker:
    def __init__(self, settings: BrokerSettings) -> None:
        self.static_settings = settings
        self.settings = settings
        self.node_id = settings.node_id
        self.started_at = time.time()
        self.loop_lag = 0.0
        self.acceptors: list[Acceptor] = []
        self.dispatcher = Dispatcher(lambda: len(self.partitions))
        self.listeners = parse_listeners(settings)
        self.budget = BufferBudget(settings.integer("millstream.broker.memory.budget.bytes"))
        self.admission = Admission()
        self._set_admission()
        self.sessions = FetchSessions(settings.integer("max.incremental.fetch.session.cache.slots"))
        self.security: Security | None = None  # where a listener asks who comes
        self.throttles = ReplicationThrottles()
        self._incarnation = uuid4().hex
        self.serving = False
        self.alone = True  # its metadata lies in a store of its own: no other broker can join
        self.probe: LivenessProbe | None = None
        self._all_connections: list[BrokerConnections] = []
        self.audit: Audit | None = None  # off by default
        self.rights: Rights | None = None  # without an authorizer everybody may do everything

    @property
    def image(self) -> Image:
        return self.controller.image

    @property
    def epoch(self) -> int:
        """Of this broker's present registration; a lost session means a new one."""
        return self.controller.broker_epoch

    @property
    def cluster_id(self) -> str:
        return self.log_dirs.cluster_id

    @cached_property
    def connections(self) -> BrokerConnections:
        """To the other brokers of the cluster; a broker that is alone does not even import it."""
        return self.new_connections()

    def new_connections(self, purpose: str = "") -> BrokerConnections:
        """Connections of their own, for requests that may wait long: a broker answers those of a connection
        in order."""
        from millstream.broker.replication.broker_connection import BrokerConnections

        made = BrokerConnections(
            lambda: self.image,
            self.listeners.inter_broker,
            f"broker-{self.node_id}-{purpose}" if purpose else f"broker-{self.node_id}",
            self.settings.integer("replica.socket.timeout.ms") / 1000,
            self._inter_broker_security(),
        )
        self._all_connections.append(made)
        return made

    def _inter_broker_security(self) -> InterBrokerSecurity | None:
        name = self.listeners.inter_broker
        protocol = next(each.protocol for each in self.listeners.advertised if each.name == name)
        if protocol == "PLAINTEXT":
            return None
        from millstream.broker.login.inter_broker import InterBrokerSecurity

        return InterBrokerSecurity(self.settings, name, protocol)

    def is_from_broker(self, call: Call) -> bool:
        """Whether the caller may do what only brokers do to each other (ClusterAction)."""
        return call.listener == self.listeners.inter_broker and may(
            self.rights, call, CLUSTER_ACTION, CLUSTER
        )

    @cached_property
    def replicas(self) -> ReplicaManager:
        """Made when the first partition with several replicas comes."""
        from millstream.broker.replication.replica_manager import ReplicaManager

        return ReplicaManager(self)

    # ------------------------------------------------------------------ start

    async def start(self) -> None:
        loop = self.loop = asyncio.get_running_loop()
        # Done, with the reason, when no write can be made durable any more: the broker must stop.
        self.failed: asyncio.Future[str] = loop.create_future()
        slow_ms = self.settings.integer("millstream.loop.slow.callback.ms")
        if slow_ms > 0:
            loop.set_debug(True)
            loop.slow_callback_duration = slow_ms / 1000
        self.audit = self._make_audit()
        try:
            self.log_dirs = LogDirs(
                self.settings.log_dirs,
                file_limit=self.settings.integer("millstream.max.open.files") or None,
                expiration_ms=self.settings.integer("producer.id.expiration.ms"),
            )
            self.log_dirs.on_offline = self._log_dir_failed
            if self.settings.string("zookeeper.connect"):
                self.store = await self._join()
            else:
                self.log_dirs.open(self.node_id)
                self._bind(loop)
                self.store = await self._open_store()
        except (LogDirError, FormatError, StoreError, OSError) as error:
            raise CannotStart(str(error)) from error
        self.alone = isinstance(self.store, LocalStore)
        self.controller = Controller(self.store, self.node_id, self._decision_context())
        self.controller.run_in_thread = self.dispatcher.in_thread
        self.forwarding = self.dispatcher.forwarding = Forwarder(self)
        self.partitions = Partitions(self.node_id, self.log_dirs, self._config_of)
        self.partitions.replication = lambda: self.replicas
        self.produce = ProduceHandler(self.partitions, loop)
        self.fetch = FetchHandler(
            self.partitions,
            self.sessions,
            self.settings.integer("fetch.max.bytes"),
            self.settings.integer("millstream.max.parked.fetches"),
        )
        self.produce.leaders = self.fetch.leaders = Leaders(lambda: self.image)
        self.coordinators = FindCoordinatorApi(self)
        self.groups = GroupCoordinator(self, loop)
        self.coordinators.add(GROUP, self.groups.runtime)
        self.transactions = TransactionCoordinator(self)
        self.coordinators.add(TRANSACTION, self.transactions.runtime)
        self.produce.transactions = TransactionVerifier(self.transactions)
        self.quotas = Quotas(self)
        self.tokens = Tokens(self.settings.text("delegation.token.secret.key"), lambda: self.controller.image)
        self.telemetry = Telemetry.wanted(self.settings)
        self._serve_apis()
        await self._enter()
        image = self.controller.image
        self._start_rights(image)
        self._follow_quotas(image)
        if self.telemetry is not None:
            self.telemetry.follow(image)
        await self.controller.listen(self._metadata_changed)
        await self._finalize_new_features()
        self.partitions.set_aside_strays()
        self.log_cleaner = LogCleaner(self)
        self.log_cleaner.start()
        self.log_dir_moves = LogDirMoves(self)
        self.log_dir_moves.start()
        self.housekeeping = Housekeeping(self)
        self.housekeeping.start()
        await self._start_http()
        self._start_audit()
        if self.security is not None:
            self.security.start()
        for acceptor in self.acceptors:
            acceptor.start()
        self.serving = True

    async def _enter(self) -> None:
        """Reads the metadata, opens the logs, and registers."""
        try:
            await self.controller.follow()
            image = self.controller.image
            problem = unsupported_feature("this broker", image.features, SUPPORTED_FEATURES)
            if problem is not None:
                await self._give_up()
                raise CannotStart(problem)
            self._follow_settings(image)  # before the logs are opened with them
            await asyncio.to_thread(self.log_dirs.load, lambda topic: self._config_named(image, topic))
            if not self.alone:
                # Whoever is registered and refuses connections is taken for dead (liveness_probe).
                for acceptor in self.acceptors:
                    acceptor.listen()
                await self._start_probe()
            await self.controller.start(self._registration())
            if not self.alone:
                self._follow_settings(image)  # others may have changed them while the logs were opened
        except (LogDirError, FormatError, OSError) as error:
            await self._give_up()
            raise CannotStart(str(error)) from error
        except (StoreError, UnknownMetadata, KafkaError) as error:
            await self._give_up()
            if not self.alone:
                raise CannotStart(str(error)) from error
            raise CannotStart(f"the metadata in {self.log_dirs.paths[0]} cannot be used: {error}") from error
        self.log_dirs.data_loss_reported()

    async def _give_up(self) -> None:
        if self.probe is not None:
            await self.probe.stop()
        await self.controller.close()

    async def _start_probe(self) -> None:
        from millstream.broker.liveness_probe import LivenessProbe

        self.probe = LivenessProbe(self.controller, self.listeners.inter_broker)
        await self.probe.start()

    async def _open_store(self) -> MetadataStore:
        """Of a broker that is alone: the metadata lies in its own folder."""
        return await LocalStore.open(Path(self.log_dirs.paths[0], METADATA_FOLDER))

    async def _join(self) -> MetadataStore:
        """Of a broker with others: the metadata lies in ZooKeeper, which also says which cluster this is."""
        from millstream.broker import membership

        try:
            identity = await membership.meet(self.settings)
        except InvalidSetting as error:
            raise CannotStart(error.message) from error
        try:
            self.node_id = identity.node_id
            self.log_dirs.open(self.node_id, identity.cluster_id)
            self._bind(self.loop)
            folder = str(Path(self.log_dirs.paths[0], METADATA_FOLDER))
            return await membership.open_store(identity.client, self.log_dirs, folder)
        except BaseException:
            await identity.client.close()
            raise

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        number = self.settings.integer

        def chosen(name: str, otherwise: int) -> int:
            return number(name) if self.settings.is_set(name) else otherwise

        self.poller = Poller(loop)
        for listener in self.listeners.bound:
            context = ListenerContext(
                listener.name,
                listener.protocol,
                number("socket.request.max.bytes"),
                self.budget,
                self.admission,
                self.poller,
            )
            if listener.protocol != "PLAINTEXT":
                self._secure(context, loop)
            self.acceptors.append(
                Acceptor(
                    listener.host,
                    listener.port,
                    context,
                    self.dispatcher,
                    loop,
                    # The kernel sizes buffers better than a default:
                    # docs/decisions/2026-11-16-socket-buffers.md
                    send_buffer=chosen("socket.send.buffer.bytes", -1),
                    receive_buffer=chosen("socket.receive.buffer.bytes", -1),
                    backlog=chosen("socket.listen.backlog.size", BACKLOG),
                    security=self.security,
                )
            )

    def _secure(self, context: ListenerContext, loop: asyncio.AbstractEventLoop) -> None:
        """Listeners with TLS or logins have needs of their own, which the others do not load."""
        if self.security is None:
            from millstream.broker.security import Security

            self.security = Security(self, loop)
        try:
            self.security.prepare(context)
        except InvalidSetting as error:
            raise CannotStart(error.message) from error

    def _serve_apis(self) -> None:
        self.produce.api = Api(0, "Produce", 3, 13, raw=self.produce.handle, advertised_from=0)
        self.fetch.api = Api(1, "Fetch", 4, 18, raw=self.fetch.handle)
        self.dispatcher.serve(self.produce.api)
        self.dispatcher.serve(self.fetch.api)
        for family in (
            ApiVersionsApi,
            MetadataApi,
            TopicsApi,
            ConfigsApi,
            PartitionOffsetsApi,
            LogDirsApi,
            TransactionsApi,
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
            for api in family(self).apis():
                if not (api.between_brokers and self.alone):
                    self.dispatcher.serve(api)
        for api in self.coordinators.apis():
            self.dispatcher.serve(api)
        if self.telemetry is not None:
            for api in TelemetryApi(self.telemetry, self.dispatcher).apis():
                self.dispatcher.serve(api)

    async def _finalize_new_features(self) -> None:
        """For a data folder from before this broker knew a feature: raise it to the level of a new folder. In
        a cluster an administrator does that, once every broker knows the feature."""
        if not self.alone:
            return
        missing = [
            FeatureUpdate(name, highest, UpgradeType.UPGRADE)
            for name, (_, highest) in SUPPORTED_FEATURES.items()
            if name not in self.image.features
        ]
        if missing:
            try:
                await self.controller.submit(UpdateFeatures(missing))
            except KafkaError as error:
                logger.error("feature levels are raised by a later start: %s", error)
                return
            logger.info(
                "feature levels raised: %s", ", ".join(f"{update.name}={update.level}" for update in missing)
            )

    def _registration(self, draining: bool = False) -> Registration:
        """Where clients find us, with the ports that were really bound."""
        bound = {acceptor.context.name: acceptor.port for acceptor in self.acceptors}
        return Registration(
            incarnation=self._incarnation,
            endpoints=tuple(
                Endpoint(listener.name, listener.host, listener.port, listener.protocol)
                for listener in self.listeners.advertised_on(bound).values()
            ),
            rack=self.settings.string("broker.rack") or None,
            features=SUPPORTED_FEATURES,
            draining=draining,
            lost_data=self.log_dirs.data_lost,
        )

    async def _start_http(self) -> None:
        self._http: asyncio.Server | None = None
        where = parse_address(
            "millstream.metrics.listener", self.settings.string("millstream.metrics.listener")
        )
        if where is None:
            return
        from millstream.broker import http_endpoint, metrics
        from millstream.http.host_names import HostNames

        host, port = where
        allowed_hosts = "millstream.metrics.allowed.hosts"
        try:
            self._http = await http_endpoint.serve(
                host,
                port,
                {
                    "/metrics": lambda: (200, "text/plain; version=0.0.4", metrics.render(self)),
                    "/health": self._health,
                },
                HostNames([host], self.settings.items(allowed_hosts), setting=allowed_hosts),
            )
        except OSError as error:
            raise CannotStart(
                f"cannot serve metrics on {host}:{port} (millstream.metrics.listener): {error}"
            ) from error
        self.metrics_port: int = self._http.sockets[0].getsockname()[1]
        logger.info("metrics on http://%s:%d/metrics", host, self.metrics_port)

    def _log_dir_failed(self, path: str, reason: str) -> None:
        """A data folder is out of service. The broker goes on without it, unless it cannot do without: there
        is no other, or the metadata log is in it. What it leads there, other brokers are to lead
        (replication/failing_replicas). May be called from a helper thread of a stop."""
        has_metadata = self.alone and path == self.log_dirs.paths[0]
        if has_metadata or len(self.log_dirs.offline) == len(self.log_dirs.paths):
            self.loop.call_soon_threadsafe(
                self._fail, f"{reason}. Check the disk; the next start checks the logs"
            )
        else:
            logger.critical(
                "%s is out of service until a restart, its partitions refuse writes: %s", path, reason
            )

    def _fail(self, reason: str) -> None:
        if not self.failed.done():
            self.failed.set_result(reason)

    def _health(self) -> tuple[int, str, str]:
        offline = sum(
            1
            for partition in self.partitions
            if (not partition.leads and partition.leader in (-1, self.node_id))
            or partition.log.offline is not None
        )
        folders = len(self.log_dirs.offline)
        good = self.serving and not offline and not folders
        body = (
            f'{{"status": "{"ok" if good else "unavailable"}", "offline_partitions": {offline}, '
            f'"offline_log_dirs": {folders}}}\n'
        )
        return 200 if good else 503, "application/json", body

    # ------------------------------------------------------------------ metadata

    def _decision_context(self) -> Context:
        settings = self.settings
        return Context(
            default_partitions=settings.integer("num.partitions"),
            default_replication_factor=settings.integer("default.replication.factor"),
            max_partitions=settings.integer("millstream.max.partitions"),
            min_insync_replicas=settings.integer("min.insync.replicas"),
            unclean_elections=settings.boolean("unclean.leader.election.enable"),
            validate=self._validate,
            list_default=_list_default,
            no_room_for=self.log_dirs.no_room_for,
            supported_features=SUPPORTED_FEATURES,
            first_features={name: highest for name, (_, highest) in SUPPORTED_FEATURES.items()},
        )

    def _validate(self, scope: str, name: str, values: Mapping[str, str]) -> None:
        """Whether these may be the settings of a topic or of a broker, with Kafka's error code for each."""
        try:
            if scope == "topic":
                self.settings.validate_topic(values)
            elif scope == "group":
                group_settings.validate(self.settings, values)
            elif scope == subscriptions.SCOPE:
                check_subscription(self.image, name, values)
            elif not name:
                self.static_settings.validate_dynamic(values, self.settings.this_broker)
            elif name == str(self.node_id):
                self.static_settings.validate_dynamic(self.settings.cluster_default, values)
                if self.security is not None:
                    self.security.check(
                        self.static_settings.with_dynamic(self.settings.cluster_default, values)
                    )
            else:  # only that broker knows its other settings
                for setting, value in values.items():
                    validate_broker_config(setting, value, per_broker=True)
        except InvalidSetting as error:
            code = ErrorCode.invalid_config if scope == "topic" else ErrorCode.invalid_request
            raise KafkaError(code, error.message) from None

    def _config_of(self, topic_id: UUID) -> LogConfig:
        return self.settings.topic(self.image.topic_config(topic_id))

    def _config_named(self, image: Image, topic: str) -> LogConfig:
        known = image.topic(topic)
        return self.settings.topic(image.topic_config(known.topic_id) if known else {})

    async def _metadata_changed(self, image: Image, delta: Delta) -> None:
        """An entry of the metadata log was applied: follow it before the change is answered."""
        if self.rights is not None and delta.changed("acls"):
            self._follow_acls(self.rights, image, delta)
        if delta.changed("quotas"):
            self._follow_quotas(image)
        if delta.changed("tokens"):
            self.tokens.changed()
        if self.telemetry is not None and delta.has_configs(subscriptions.SCOPE):
            self.telemetry.follow(image)
        if delta.broker_configs(self.node_id):
            self._follow_settings(image)
        await self.partitions.apply(image, delta)
        if delta.brokers and "replicas" in self.__dict__:
            self.replicas.brokers_changed()
        self.groups.metadata_changed(delta)
        if self.security is not None:
            self.security.metadata_changed(image, delta)

    def _start_rights(self, image: Image) -> None:
        name = self.settings.text("authorizer.class.name")
        if not name:
            return
        if name not in AUTHORIZERS:
            raise CannotStart(
                f"authorizer.class.name={name} is not known here; use {AUTHORIZERS[0]}, "
                "or leave it empty: then everybody who can connect may do everything"
            )
        apis = self.dispatcher.apis
        self.rights = Rights(
            image.acls,
            super_users(self.settings.text("super.users") or ""),
            self.settings.boolean("allow.everyone.if.no.acl.found"),
            lambda key: apis[key].name if key in apis else str(key),
        )
        self.produce.rights = self.fetch.rights = self.rights
        self.produce.topic_name = self.fetch.topic_name = self._topic_name

    def _make_audit(self) -> Audit | None:
        if not self.settings.string("millstream.audit.log"):
            return None
        from millstream.broker.audit.sinks import make_audit

        try:
            return make_audit(self)
        except InvalidSetting as error:
            raise CannotStart(error.message) from error

    def _start_audit(self) -> None:
        if self.audit is None:
            return
        self.audit.watch(self.dispatcher.apis.values())
        if self.rights is not None:
            self.rights.audit = self.audit
        if self.security is not None:
            self.security.use_audit(self.audit)
        self.audit.start()

    def _topic_name(self, topic_id: bytes) -> str | None:
        found = self.image.topics_by_id.get(UUID(bytes=topic_id))
        return None if found is None else found.name

    def _follow_acls(self, rights: Rights, image: Image, delta: Delta) -> None:
        """What connections repeat was allowed by the old rules. Fetches that wait are judged when they
        wake."""
        keys = [cast(AclBinding, key) for table, key in delta.security if table == "acls"]
        rights.change(
            [key for key in keys if key in image.acls], [key for key in keys if key not in image.acls]
        )
        self.forget_fast_paths()

    def _follow_quotas(self, image: Image) -> None:
        self.quotas.follow(image)
        self.fetch.quotas = self.quotas if self.quotas.active else None
        self.admission.rates.by_ip = self.quotas.by_ip

    def forget_fast_paths(self) -> None:
        for connection in self.admission.open:
            connection.fast_path = None

    def _follow_settings(self, image: Image) -> None:
        self.settings = self.static_settings.with_dynamic(
            image.broker_config(), image.broker_config(self.node_id)
        )
        for problem in self.settings.problems:
            logger.warning("dynamic setting ignored: %s", problem)
        self._settings_changed()

    def _settings_changed(self) -> None:
        settings = self.settings
        self.groups.settings_changed()
        self._set_admission()
        if self.security is not None:
            self.security.settings_changed()
        self.controller.context = self._decision_context()
        self.throttles.configure(
            settings.integer("leader.replication.throttled.rate"),
            settings.integer("follower.replication.throttled.rate"),
            settings.integer("replica.alter.log.dirs.io.max.bytes.per.second"),
            time.monotonic(),
        )
        self.log_dirs.producers_expire_after(settings.integer("producer.id.expiration.ms"))
        if "replicas" in self.__dict__:
            self.replicas.settings_changed()
        self.partitions.reconfigure_all()

    def _set_admission(self) -> None:
        settings, admission = self.settings, self.admission
        admission.limit = settings.integer("max.connections")
        admission.rates.limit = settings.integer("max.connection.creation.rate")
        if admission.rates.limit >= NO_LIMIT:
            admission.rates.limit = 0
        admission.rates.windows = settings.integer("quota.window.num")
        admission.rates.window_ms = settings.integer("quota.window.size.seconds") * 1000
        admission.per_address = settings.integer("max.connections.per.ip")
        name = "max.connections.per.ip.overrides"
        admission.overrides = host_limits(name, settings.string(name))
        names = {listener.name for listener in self.listeners.bound}
        prefixed = {listener: f"listener.name.{listener.lower()}.max.connections" for listener in names}
        admission.per_listener = {
            listener: settings.integer(name) for listener, name in prefixed.items() if settings.is_set(name)
        }

    # ------------------------------------------------------------------ stop

    async def _leave(self) -> None:
        from millstream.broker import controlled_shutdown

        if self.probe is not None:
            await self.probe.stop()
        if self.settings.boolean("controlled.shutdown.enable"):
            await controlled_shutdown.drain(self.controller, self._registration(draining=True))
        self.controller.stay_away()

    async def stop(self) -> None:
        """Clean stop: hand over what this broker leads, no new work, flush everything, mark the folders
        clean."""
        self.serving = False
        logger.info("stopping")
        if not self.alone:
            await self._leave()
        for acceptor in self.acceptors:
            acceptor.stop()
        await self.housekeeping.stop()
        await self.log_dir_moves.stop()
        await self.log_cleaner.stop()
        self.groups.close()
        self.transactions.close()
        if self.security is not None:
            await self.security.stop()
        if self.audit is not None:
            await self.audit.stop()
        for connection in list(self.admission.open):
            connection.close()
        self.poller.close()
        self.dispatcher.close()
        if self._http is not None:
            self._http.close()
        if "replicas" in self.__dict__:
            await self.replicas.close()
        for connections in self._all_connections:
            connections.close()
        await self.controller.close()
        await asyncio.get_running_loop().run_in_executor(None, self.log_dirs.close, True, self.epoch)
        logger.info("stopped")


def _list_default(scope: str, name: str) -> str | None:
    """The default of a setting that is a list; None for any other."""
    if scope == subscriptions.SCOPE:
        return "" if name in ("metrics", "match") else None
    setting = (TOPIC if scope == "topic" else BROKER).get(name)
    return (setting.default or "") if setting is not None and setting.type is Type.LIST else None
