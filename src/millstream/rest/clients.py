"""The Kafka clients with which requests are served.

Without users of the cluster there is one set for all requests, with the proxy's own login. With them every
caller has a set of its own that logs in as the caller: the brokers see who it is, and their ACLs and quotas
count. A set is made when a caller first comes, and its threads and connections when they are first needed.
Nothing in it is shared with other callers, so whoever waits, waits alone.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer

from millstream.client import Cluster
from millstream.client.security import OAUTHBEARER, Sasl
from millstream.http.cluster_login import Caller
from millstream.rest import errors, producer
from millstream.rest.cluster_queries import THREADS, Kafka
from millstream.rest.consumer_instances import Instances, InstanceTally
from millstream.rest.librdkafka_config import known, translated
from millstream.rest.producer import Producing, Tally
from millstream.rest.rest_config import RestConfig
from millstream.rest.schemas import Schemas
from millstream.rest.token_producer import TokenProducer
from millstream.serdes.client import SchemaRegistry
from millstream.wire.errors import ErrorCode
from millstream.wire.errors import KafkaError as BrokerError

log = logging.getLogger(__name__)

MAX_CALLERS = 500
IDLE_SECONDS = 300.0
CALLERS_THREADS = 2  # for questions of one caller; and for its consumer instances:
CALLERS_CONSUMER_THREADS = 8
RETIRING = 0.1  # seconds between looks whether clients with an older token are still at work
BEARER_SECONDS = 300.0  # a token's own end is known to the broker
# librdkafka's names
CONSUMER_DEFAULTS = {
    "auto.offset.reset": "latest",
    "enable.auto.commit": "true",
    "queued.min.messages": "1000",
    "fetch.queue.backoff.ms": "50",
    "partition.assignment.strategy": "range,roundrobin",
}


class RestClients:
    """One set of clients. `config` is the proxy's."""

    def __init__(
        self,
        config: RestConfig,
        kafka: Kafka,
        producing: Producing,
        schemas: Schemas,
        instances: Instances,
    ) -> None:
        self.config = config
        self.kafka = kafka
        self.producing = producing
        self.schemas = schemas
        self.instances = instances
        self.caller: Caller | None = None
        self.requests = 0  # that are being served
        self.used = time.monotonic()

    @property
    def idle(self) -> bool:
        return not self.requests and not len(self.instances)

    async def close(self) -> None:
        await asyncio.gather(self.instances.close(), self.close_but_instances())

    async def close_but_instances(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.producing.close)
        self.schemas.close()
        self.kafka.close()


class ClientFactory:
    """What all sets have in common: settings that were checked once, and the counts for the metrics."""

    def __init__(self, config: RestConfig) -> None:
        """ValueError for settings that librdkafka does not take."""
        self._config = config
        client = {"bootstrap.servers": config.bootstrap, "client.id": "rest-proxy"}
        chosen = translated(config.for_clients("producer."))
        self._producer = known(Producer, {**client, **producer.DEFAULTS, **chosen})
        self._consumer = _consumer(config, client)
        self._takes_tokens: bool | None = None
        self.tally = Tally()
        self.instance_tally = InstanceTally(int(config.value("consumer.instances.max")))

    def own(self) -> RestClients:
        """With the proxy's login."""
        config = self._config
        kafka = Kafka(config.client())
        limit, threads = self.instance_tally.limit, int(config.value("consumer.threads"))
        return RestClients(
            config,
            kafka,
            Producing(self._producer, 3.0, self.tally),
            Schemas(_registry(config, config.client().sasl)),
            Instances(config, kafka, self._consumer, self.instance_tally, limit, threads),
        )

    def of(
        self, caller: Caller, on_login_refused: Callable[[], None], kept: Instances | None = None
    ) -> RestClients:
        """With the caller's login. `on_login_refused` is called in any thread. `kept` are instances of the
        caller that go on with the new login."""
        config = self._config

        def failed(error: Any) -> None:
            if error.code() == KafkaError._AUTHENTICATION:
                on_login_refused()

        client = caller.config(config.client())
        kafka = Kafka(client, min(CALLERS_THREADS, THREADS))
        threads = min(CALLERS_CONSUMER_THREADS, int(config.value("consumer.threads")))
        limit = int(config.value("consumer.instances.per.caller"))
        login = _login(caller.sasl)
        consumer = {**self._consumer, **login, "error_cb": failed}
        check: Callable[[], None] | None = None
        if caller.sasl.delegated:
            check = partial(self._check_tokens_for_consumers, caller)
            producing = Producing(
                self._producer, 3.0, self.tally, on_login_refused, partial(TokenProducer, client)
            )
        else:
            producing = Producing({**self._producer, **login}, 3.0, self.tally, on_login_refused)
        if kept is None:
            kept = Instances(config, kafka, consumer, self.instance_tally, limit, threads, check)
        else:
            kept.use(kafka, consumer, check)
        schemas = Schemas(_registry(config, caller.sasl, caller.authorization))
        found = RestClients(config, kafka, producing, schemas, kept)
        found.caller = caller
        return found

    def _check_tokens_for_consumers(self, caller: Caller) -> None:
        """Consumers are librdkafka's, which cannot say that a login is a delegation token. Our brokers see
        that by themselves, Apache Kafka's do not. A RestError says that they do not; asked once."""
        if self._takes_tokens is None:
            plain = replace(caller.config(self._config.client()), sasl=replace(caller.sasl, delegated=False))
            try:
                with Cluster(plain) as cluster:
                    cluster.any()
                self._takes_tokens = True
            except BrokerError as error:
                if error.code is not ErrorCode.sasl_authentication_failed:
                    raise errors.for_kafka(error) from None
                self._takes_tokens = False
        if not self._takes_tokens:
            raise errors.http_error(
                501,
                "Callers by certificate have no consumer instances at these brokers: log in by a password, "
                "an API key or a bearer token",
            )


class CallerClients:
    """The sets of callers: at most MAX_CALLERS, and none longer than IDLE_SECONDS without use. For one event
    loop."""

    def __init__(self, factory: ClientFactory, forget: Callable[[Caller], None]) -> None:
        """`forget` is told of a caller whose login a client was refused."""
        self._factory = factory
        self._forget = forget
        self._found: OrderedDict[bytes, RestClients] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._found)

    def of(self, caller: Caller) -> RestClients:
        """RestError if there are too many that are at work."""
        found = self._found.get(caller.lasting_key)
        if found is None and len(self._found) >= MAX_CALLERS:
            self._make_room()
        if found is None or (found.caller is not None and found.caller.key != caller.key):
            found = self._make(caller, found)
        found.used = time.monotonic()
        self._found.move_to_end(caller.lasting_key)
        return found

    def _make(self, caller: Caller, before: RestClients | None) -> RestClients:
        """`before` are those with a delegation token that was replaced: its instances stay."""
        loop = asyncio.get_running_loop()
        made: list[RestClients] = []
        found = self._factory.of(
            caller,
            lambda: _call_in(loop, lambda: self._refused(caller, made)),
            before.instances if before is not None else None,
        )
        made.append(found)
        if before is None:
            found.instances.start()
        else:
            self._closing_task(_retire(before))
        self._found[caller.lasting_key] = found
        return found

    def _make_room(self) -> None:
        key = next((key for key, clients in self._found.items() if clients.idle), None)
        if key is None:
            raise errors.http_error(503, f"{MAX_CALLERS} callers are at work; try again later")
        self._close(self._found.pop(key))

    def _refused(self, caller: Caller, clients: list[RestClients]) -> None:
        """A client could not log in: it would try for ever. The next request finds out whether the caller may
        still come. What a set says that is closed already is nothing to the one in its place."""
        if self._found.get(caller.lasting_key) in clients:
            self._forget(caller)
            self.end(caller)

    def end(self, caller: Caller) -> None:
        """The caller may no longer come in."""
        found = self._found.pop(caller.lasting_key, None)
        if found is not None:
            found.producing.login_refused = True
            self._close(found)

    def _close(self, clients: RestClients) -> None:
        self._closing_task(clients.close())

    def _closing_task(self, closing: Awaitable[None]) -> None:
        task = asyncio.ensure_future(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def expire(self) -> None:
        """Those used longest ago come first."""
        end = time.monotonic() - IDLE_SECONDS
        for key, clients in list(self._found.items()):
            if clients.used > end:
                break
            if clients.idle:
                del self._found[key]
                self._close(clients)

    async def close(self) -> None:
        for clients in self._found.values():
            self._close(clients)
        self._found.clear()
        await asyncio.gather(*self._closing, return_exceptions=True)


async def _retire(clients: RestClients) -> None:
    """What is under way ends with the token that it began with, which is good for a while."""
    while clients.requests:  # noqa: ASYNC110 - seldom, and short
        await asyncio.sleep(RETIRING)
    await clients.close_but_instances()


def _call_in(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(act)


def _login(sasl: Sasl) -> dict[str, Any]:
    """librdkafka's settings."""
    if sasl.mechanism == OAUTHBEARER:

        def token(_config: str) -> tuple[str, float, str, dict[str, str]]:
            return sasl.password, time.time() + BEARER_SECONDS, sasl.username, {}

        return {"sasl.mechanism": OAUTHBEARER, "oauth_cb": token, "sasl.username": "", "sasl.password": ""}
    return {
        "sasl.mechanism": sasl.mechanism,
        "sasl.username": sasl.username,
        "sasl.password": sasl.password,
    }


def _consumer(config: RestConfig, client: dict[str, str]) -> dict[str, Any]:
    # An instance that nobody uses is closed by the proxy, so its membership must last as long.
    interval = max(300_000, config.value("consumer.instance.timeout.ms") + 60_000)
    ahead = {"queued.max.messages.kbytes": config.value("consumer.prefetch.kbytes")}
    chosen = translated(config.for_clients("consumer."))
    given = {**client, **CONSUMER_DEFAULTS, **ahead, "max.poll.interval.ms": interval, **chosen}
    # What counts as read is for the proxy to say.
    return known(Consumer, given) | {"enable.auto.offset.store": False}


def _registry(config: RestConfig, login: Sasl | None, authorization: str = "") -> SchemaRegistry:
    user, _, password = (config.secret("schema.registry.basic.auth.user.info") or "").partition(":")
    source = str(config.value("schema.registry.basic.auth.credentials.source")).upper()
    token = ""
    if source == "SASL_INHERIT" and login is not None:
        user, password = login.username, login.password
        if login.mechanism == OAUTHBEARER:
            user, password, token = "", "", login.password
    else:
        authorization = ""
    return SchemaRegistry(
        config.value("schema.registry.url"),
        user=user or None,
        password=password,
        token=token,
        authorization=authorization,
        ca_file=config.value("schema.registry.ssl.truststore.location"),
        timeout=config.value("schema.registry.request.timeout.ms") / 1000,
    )
