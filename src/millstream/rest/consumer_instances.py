"""All consumer instances: made, found, closed when nobody uses them."""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaException

from millstream.client import Admin
from millstream.patterns import InvalidPattern, compile_pattern
from millstream.rest import errors
from millstream.rest.cluster_queries import Kafka
from millstream.rest.consumer_instance import Instance, Options
from millstream.rest.formats import V2_FORMATS
from millstream.rest.rest_config import RestConfig

log = logging.getLogger(__name__)

TICK = 1.0
LOOK_AROUND = 30.0  # seconds between looks for new topics that patterns match
INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
RESETS = {"latest": "latest", "earliest": "earliest", "none": "error"}
LONGEST_NAME = 1000
FIELDS: dict[str, type | tuple[type, ...]] = {
    "id": str,
    "name": str,
    "format": str,
    "auto.offset.reset": str,
    "auto.commit.enable": (str, bool),
    "fetch.min.bytes": int,
    "responseMinBytes": int,
    "consumer.request.timeout.ms": int,
    "requestWaitMs": int,
}


class InstanceTally:
    """Of the instances of all callers."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.open = 0
        self.records_given = 0
        self.expired = 0


class Instances:
    """Those of one caller, or of all where the proxy does not ask who comes. `check` raises a RestError where
    there can be none."""

    def __init__(
        self,
        config: RestConfig,
        kafka: Kafka,
        consumer_config: dict[str, Any],
        tally: InstanceTally,
        limit: int,
        threads: int,
        check: Callable[[], None] | None = None,
    ) -> None:
        self._kafka = kafka
        self._consumer_config = consumer_config
        self._check = check
        self._limit = limit
        self._server = str(config.value("id"))
        self._timeout = config.value("consumer.instance.timeout.ms") / 1000
        self._wait = config.value("consumer.request.timeout.ms") / 1000
        self._min_bytes = int(config.value("fetch.min.bytes"))
        self.max_bytes = int(config.value("consumer.request.max.bytes"))
        self._pool = ThreadPoolExecutor(max(1, threads), thread_name_prefix="consumer")
        self._found: dict[tuple[str, str], Instance | None] = {}
        self._keeper: asyncio.Task[None] | None = None
        self._looked = time.monotonic()
        self._closing: set[asyncio.Task[None]] = set()
        self.tally = tally

    def __len__(self) -> int:
        return len(self._found)

    def start(self) -> None:
        self._keeper = asyncio.create_task(self._keep())

    def use(self, kafka: Kafka, consumer_config: dict[str, Any], check: Callable[[], None] | None) -> None:
        """The caller has another login: for new instances, and for the next login of those that there are."""
        self._kafka = kafka
        self._consumer_config = consumer_config
        self._check = check
        user, password = (consumer_config[f"sasl.{name}"] for name in ("username", "password"))
        for one in self._found.values():
            if one is not None:
                one.log_in_as(user, password)

    async def create(self, group: str, body: dict[str, Any]) -> Instance:
        if self._check is not None:
            await self.run(self._check)
        options, consumer_config, name = self._checked(body, self._consumer_config)
        if not group or len(group) > LONGEST_NAME or len(name) > LONGEST_NAME or "\0" in group + name:
            raise errors.invalid_consumer_config("the names of group and instance are too long, or empty")
        key = (group, name)
        if key in self._found:
            raise errors.instance_exists()
        for count, limit in ((len(self._found), self._limit), (self.tally.open, self.tally.limit)):
            if count >= limit:
                raise errors.too_many_instances(limit)
        self._found[key] = None  # the name is taken from now on
        self.tally.open += 1
        try:
            consumer = await self.run(lambda: Consumer(consumer_config | {"group.id": group}, logger=log))
            instance = Instance(group, name, options, consumer, self.run)
        except KafkaException as error:
            self._remove(key)
            raise errors.invalid_consumer_config(error.args[0].str()) from None
        except BaseException:
            self._remove(key)
            raise
        self._found[key] = instance
        return instance

    def _checked(self, body: dict[str, Any], defaults: dict[str, Any]) -> tuple[Options, dict[str, Any], str]:
        for field, value in body.items():
            field_type = FIELDS.get(field)
            if field_type is None:
                raise errors.unprocessable(f"Unrecognized field: {field}")
            if value is not None and (
                not isinstance(value, field_type) or (field_type is int and type(value) is bool)
            ):
                raise errors.unprocessable(f"{field}: {value!r} is not what was expected")
        form = (body.get("format") or "binary").upper()
        if form not in V2_FORMATS:
            raise errors.unprocessable("Invalid format type.")
        reset = body.get("auto.offset.reset")
        if reset is not None and reset not in RESETS:
            raise errors.invalid_consumer_config(
                f"Invalid value {reset} for configuration auto.offset.reset: one of latest, earliest, none"
            )
        commit = body.get("auto.commit.enable")
        if commit is not None and str(commit).lower() not in ("true", "false"):
            raise errors.invalid_consumer_config(
                f"Invalid value {commit} for configuration enable.auto.commit: true or false"
            )
        minimum = _first(body, "fetch.min.bytes", "responseMinBytes")
        if minimum is not None and not -1 <= minimum <= 10_000_000:
            raise errors.RestError(
                422,
                40001,
                "Invalid consumer configuration. It does not abide by the constraints: "
                f"fetch.min.bytes is {minimum}, it must be from -1 to 10000000",
            )
        wait = _first(body, "consumer.request.timeout.ms", "requestWaitMs")
        if wait is not None and not 0 <= wait <= 600_000:
            raise errors.invalid_consumer_config("consumer.request.timeout.ms must be from 0 to 600000")
        consumer_config = dict(defaults)
        if reset is not None:
            consumer_config["auto.offset.reset"] = RESETS[reset]
        if commit is not None:
            consumer_config["enable.auto.commit"] = str(commit).lower()
        options = Options(
            form,
            self._wait if wait is None else wait / 1000,
            self._min_bytes if minimum is None else minimum,
            str(consumer_config.get("enable.auto.commit", "true")).lower() == "true",
        )
        return options, consumer_config, body.get("id") or body.get("name") or self._new_name()

    def _new_name(self) -> str:
        server = f"{self._server}-" if self._server else ""
        return f"rest-consumer-{server}{uuid.uuid4()}"

    def get(self, group: str, name: str) -> Instance:
        found = self._found.get((group, name))
        if found is None:
            raise errors.instance_not_found()
        found.used = time.monotonic()
        return found

    async def delete(self, group: str, name: str) -> None:
        instance = self.get(group, name)
        self._remove((group, name))
        await instance.close()

    def _remove(self, key: tuple[str, str]) -> None:
        if key in self._found:
            del self._found[key]
            self.tally.open -= 1

    async def subscribe_to_pattern(self, instance: Instance, text: str) -> None:
        try:
            pattern = await self.run(lambda: compile_pattern(text))
        except InvalidPattern as error:
            raise errors.invalid_payload(f"topic_pattern: {error}") from None
        names = await self._kafka.run(lambda cluster: Admin(cluster).topic_names())
        await instance.subscribe(await self.run(lambda: matching(pattern, names)), pattern)

    async def run(self, act: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, act)

    # What happens by itself

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            try:
                self._expire()
                await asyncio.gather(*(one.keep() for one in self._found.values() if one is not None))
                if time.monotonic() - self._looked > LOOK_AROUND:
                    self._looked = time.monotonic()
                    await self._look_around()
            except Exception:
                log.exception("looking after consumer instances")

    def _expire(self) -> None:
        now = time.monotonic()
        for key, instance in list(self._found.items()):
            if instance is None or instance.lock.locked() or now - instance.used < self._timeout:
                continue
            log.info(
                "consumer instance %s of group %s was not used and is closed", instance.name, instance.group
            )
            self._remove(key)
            self.tally.expired += 1
            task = asyncio.create_task(instance.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _look_around(self) -> None:
        followers = [one for one in self._found.values() if one is not None and one.pattern is not None]
        if followers:
            names = await self._kafka.run(lambda cluster: Admin(cluster).topic_names())
            for one in followers:
                pattern = one.pattern
                if pattern is not None:
                    found = await self.run(partial(matching, pattern, names))
                    if one.pattern is pattern:
                        await one.follow(found)

    async def close(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
        instances = [one for one in self._found.values() if one is not None]
        for key in list(self._found):
            self._remove(key)
        await asyncio.gather(*(one.close() for one in instances), *self._closing, return_exceptions=True)
        self._pool.shutdown(wait=False, cancel_futures=True)


def matching(pattern: Any, names: list[str]) -> list[str]:
    """Java's patterns match whole names, and leave out Kafka's own topics."""
    return [name for name in names if name not in INTERNAL and pattern.fullmatch(name)]


def _first(body: dict[str, Any], *names: str) -> Any:
    return next((body[name] for name in names if body.get(name) is not None), None)
