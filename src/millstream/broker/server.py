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
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from millstream.broker.apis.api_versions import SUPPORTED_FEATURES
from millstream.broker.apis.fetch import FetchHandler
from millstream.broker.apis.fetch_sessions import FetchSessions
from millstream.broker.apis.find_coordinator import GROUP, TRANSACTION, FindCoordinatorApi
from millstream.broker.apis.leaders import Leaders
from millstream.broker.apis.produce import ProduceHandler
from millstream.broker.apis.table import serve_apis
from millstream.broker.authorizer import AUTHORIZERS, CLUSTER, CLUSTER_ACTION, Authorizer, may, super_users
from millstream.broker.coordinators.groups.coordinator import GroupCoordinator
from millstream.broker.coordinators.transactions.coordinator import TransactionCoordinator
from millstream.broker.coordinators.transactions.verification import TransactionVerifier
from millstream.broker.dynamic_config import DynamicConfig
from millstream.broker.features import finalize_new_features
from millstream.broker.forwarding import Forwarder
from millstream.broker.housekeeping import Housekeeping
from millstream.broker.log_cleaner import LogCleaner
from millstream.broker.log_dir_moves import LogDirMoves
from millstream.broker.metadata_publisher import MetadataPublisher
from millstream.broker.network.buffer_budget import BufferBudget
from millstream.broker.network.dispatch import Call, Dispatcher
from millstream.broker.network.listener import Acceptor, Admission, ListenerContext
from millstream.broker.network.poller import Poller
from millstream.broker.partitions import Partitions
from millstream.broker.quotas import Quotas
from millstream.broker.replication.throttle import ReplicationThrottles
from millstream.broker.telemetry.manager import Telemetry
from millstream.broker.tokens import Tokens
from millstream.cluster.brokers import unsupported_feature
from millstream.cluster.driver import Controller
from millstream.cluster.image import Image
from millstream.cluster.local_store import LocalStore
from millstream.cluster.metadata_records import Endpoint, UnknownMetadata
from millstream.cluster.registration import Registration
from millstream.cluster.store import MetadataStore, StoreError
from millstream.settings.listeners import parse_address, parse_listeners
from millstream.settings.log_config import LogConfig
from millstream.settings.resolve import BrokerSettings
from millstream.settings.values import InvalidSetting
from millstream.storage.checkpoints import FormatError
from millstream.storage.log_dirs import LogDirError, LogDirs
from millstream.wire.errors import KafkaError

if TYPE_CHECKING:
    from millstream.broker.audit.log import Audit
    from millstream.broker.liveness_probe import LivenessProbe
    from millstream.broker.login.inter_broker import InterBrokerSecurity
    from millstream.broker.replication.broker_connection import BrokerConnections
    from millstream.broker.replication.replica_manager import ReplicaManager
    from millstream.broker.security import Security

logger = logging.getLogger("millstream.broker")

METADATA_FOLDER = "millstream-metadata"
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
        self.dynamic_config = DynamicConfig(self)
        self.dynamic_config.set_admission()
        self.sessions = FetchSessions(settings.integer("max.incremental.fetch.session.cache.slots"))
        self.security: Security | None = None  # where a listener asks who comes
        self.throttles = ReplicationThrottles()
        self._incarnation = uuid4().hex
        self.serving = False
        self.alone = True  # its metadata lies in a store of its own: no other broker can join
        self.probe: LivenessProbe | None = None
        self._all_connections: list[BrokerConnections] = []
        self.audit: Audit | None = None  # off by default
        self.authorizer: Authorizer | None = None  # without an authorizer everybody may do everything

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
            self.authorizer, call, CLUSTER_ACTION, CLUSTER
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
        self.store = await self._open()
        self.alone = isinstance(self.store, LocalStore)
        self.controller = Controller(self.store, self.node_id, self.dynamic_config.decision_context())
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
        serve_apis(self)
        await self._enter()
        image = self.controller.image
        self._start_authorizer(image)
        publisher = MetadataPublisher(self)
        publisher.follow_quotas(image)
        if self.telemetry is not None:
            self.telemetry.follow(image)
        await self.controller.listen(publisher.publish)
        if self.alone:
            await finalize_new_features(self.controller)
        self.partitions.set_aside_strays()
        self.log_cleaner = LogCleaner(self)
        self.log_cleaner.start()
        self.log_dir_moves = LogDirMoves(self)
        self.log_dir_moves.start()
        self.housekeeping = Housekeeping(self)
        self.housekeeping.start()
        await self._start_monitoring()
        self._start_audit()
        if self.security is not None:
            self.security.start()
        for acceptor in self.acceptors:
            acceptor.start()
        self.serving = True

    async def _open(self) -> MetadataStore:
        """Locks the data folders, binds the listeners, and opens the store of the metadata."""
        try:
            self.log_dirs = LogDirs(
                self.settings.log_dirs,
                file_limit=self.settings.integer("millstream.max.open.files") or None,
                expiration_ms=self.settings.integer("producer.id.expiration.ms"),
            )
            self.log_dirs.on_offline = self._log_dir_failed
            if self.settings.string("zookeeper.connect"):
                return await self._join()
            self.log_dirs.open(self.node_id)
            self._bind(self.loop)
            return await self._open_store()
        except (LogDirError, FormatError, StoreError, OSError) as error:
            raise CannotStart(str(error)) from error

    async def _enter(self) -> None:
        """Reads the metadata, opens the logs, and registers."""
        try:
            await self.controller.follow()
            image = self.controller.image
            problem = unsupported_feature("this broker", image.features, SUPPORTED_FEATURES)
            if problem is not None:
                await self._give_up()
                raise CannotStart(problem)
            self.dynamic_config.follow(image)  # before the logs are opened with them
            await asyncio.to_thread(self.log_dirs.load, lambda topic: self._config_named(image, topic))
            if not self.alone:
                # Whoever is registered and refuses connections is taken for dead (liveness_probe).
                for acceptor in self.acceptors:
                    acceptor.listen()
                await self._start_probe()
            await self.controller.start(self._registration())
            if not self.alone:
                self.dynamic_config.follow(image)  # others may have changed them while the logs were opened
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

    async def _start_monitoring(self) -> None:
        self._http: asyncio.Server | None = None
        setting = "millstream.metrics.listener"
        where = parse_address(setting, self.settings.string(setting))
        if where is None:
            return
        from millstream.broker.monitoring import serve_monitoring

        host, port = where
        try:
            self._http = await serve_monitoring(self, host, port)
        except OSError as error:
            raise CannotStart(f"cannot serve metrics on {host}:{port} ({setting}): {error}") from error
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

    # ------------------------------------------------------------------ metadata

    def _config_of(self, topic_id: UUID) -> LogConfig:
        return self.settings.topic(self.image.topic_config(topic_id))

    def _config_named(self, image: Image, topic: str) -> LogConfig:
        known = image.topic(topic)
        return self.settings.topic(image.topic_config(known.topic_id) if known else {})

    def _start_authorizer(self, image: Image) -> None:
        name = self.settings.text("authorizer.class.name")
        if not name:
            return
        if name not in AUTHORIZERS:
            raise CannotStart(
                f"authorizer.class.name={name} is not known here; use {AUTHORIZERS[0]}, "
                "or leave it empty: then everybody who can connect may do everything"
            )
        apis = self.dispatcher.apis
        self.authorizer = Authorizer(
            image.acls,
            super_users(self.settings.text("super.users") or ""),
            self.settings.boolean("allow.everyone.if.no.acl.found"),
            lambda key: apis[key].name if key in apis else str(key),
        )
        self.produce.authorizer = self.fetch.authorizer = self.authorizer
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
        if self.authorizer is not None:
            self.authorizer.audit = self.audit
        if self.security is not None:
            self.security.use_audit(self.audit)
        self.audit.start()

    def _topic_name(self, topic_id: bytes) -> str | None:
        found = self.image.topics_by_id.get(UUID(bytes=topic_id))
        return None if found is None else found.name

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
