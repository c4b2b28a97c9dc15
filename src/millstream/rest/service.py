"""The parts of a running proxy, put together."""

import asyncio
import contextlib
from collections.abc import Iterator

from prometheus_client.core import Metric

from millstream.http.cluster_authentication import cluster_login
from millstream.http.metrics import counter, gauge
from millstream.rest.clients import CallerClients, ClientFactory
from millstream.rest.rest_config import RestConfig

EXPIRY_SECONDS = 10.0  # between looks for callers that are no longer there


class RestService:
    """`own` are the clients with the proxy's login, `callers` those of users of the cluster, who come in by
    `login`."""

    def __init__(self, config: RestConfig) -> None:
        self.config = config
        self.login = cluster_login(config, config.client())
        self._factory = ClientFactory(config)
        self.own = self._factory.own()
        self.callers = CallerClients(self._factory, self.login.forget if self.login else lambda _: None)
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> str:
        self.own.instances.start()
        if self.login is not None:
            self.login.on_refused.append(self.callers.end)
            self._keeper = asyncio.create_task(self._keep())
        return f"bootstrap.servers={self.config.bootstrap}"

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_SECONDS)
            self.callers.expire()

    def collect_metrics(self) -> Iterator[Metric]:
        """What `/metrics` shows of the proxy itself."""
        made, instances = self._factory.tally, self._factory.instance_tally
        yield counter("millstream_rest_records_produced_total", "Records that Kafka took.", made.delivered)
        yield counter("millstream_rest_records_refused_total", "Records that it did not take.", made.refused)
        yield counter(
            "millstream_rest_records_consumed_total", "Records given to consumers.", instances.records_given
        )
        yield gauge("millstream_rest_consumer_instances", "Consumer instances.", instances.open)
        yield counter("millstream_rest_consumer_instances_expired_total", "Closed unused.", instances.expired)
        yield gauge("millstream_rest_callers", "Callers with clients of their own.", len(self.callers))

    async def stop(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        if self.login is not None:
            self.login.close()
        await asyncio.gather(self.callers.close(), self.own.close())
