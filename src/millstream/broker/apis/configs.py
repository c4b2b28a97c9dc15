"""Configs as clients see and change them: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs,
ListConfigResources.

DescribeConfigs 1-4
     1  where a value comes from, with its synonyms (KIP-226)
     2  the client expects to be throttled after the response (KIP-219)
     3  type and documentation (KIP-569)
     4  flexible
AlterConfigs 0-2 (KIP-133)
     1  the client expects to be throttled after the response (KIP-219)
     2  flexible
IncrementalAlterConfigs 0-1 (KIP-339)
     1  flexible
ListConfigResources 0-1
     0  client metrics only (KIP-714)
     1  any resource type (KIP-1142)

Resources are topics, brokers (the empty name is the default of all brokers), groups (KIP-848),
subscriptions to the metrics of clients (KIP-714), and the loggers of a broker, whose levels change at once
and are not kept (KIP-412). Service accounts and their API
keys are resources, too, under numbers of our own. A change of a broker's own
settings goes to that broker, which alone can judge it; it changes the levels of its loggers itself and
forwards the rest to the controller.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Any

from millstream.broker import log_levels
from millstream.broker.authorizer import ALTER, ALTER_CONFIGS, CLUSTER, DESCRIBE, DESCRIBE_CONFIGS, may
from millstream.broker.coordinators.groups import group_settings
from millstream.broker.network.dispatch import Api, Call
from millstream.broker.network.slices import Slices, collect, distinct
from millstream.broker.telemetry import subscriptions
from millstream.broker.telemetry.manager import resources as subscribed
from millstream.cluster.commands import (
    OK,
    AlterConfigs,
    ConfigChange,
    ConfigOp,
    Resource,
    Result,
    SetConfigs,
)
from millstream.cluster.controller import decide
from millstream.cluster.topic_names import name_problem
from millstream.settings.resolve import ConfigEntry, ConfigSource
from millstream.settings.values import Type
from millstream.wire.acls import CLUSTER_NAME, Operation, ResourceType
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.server import Broker

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SERVICE_ACCOUNT, API_KEY = 101, 102  # not Kafka's
SCOPES = {
    TOPIC: "topic",
    BROKER: "broker",
    GROUP: "group",
    CLIENT_METRICS: subscriptions.SCOPE,
    SERVICE_ACCOUNT: "service-account",
    API_KEY: "api-key",
}


class ConfigsApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def apis(self) -> list[Api]:
        return [
            Api(32, "DescribeConfigs", 1, 4, self.describe_configs),
            Api(33, "AlterConfigs", 0, 2, self.alter_configs, forwardable=True),
            Api(44, "IncrementalAlterConfigs", 0, 1, self.incremental_alter_configs, forwardable=True),
            Api(74, "ListConfigResources", 0, 1, self.list_config_resources),
        ]

    # ------------------------------------------------------------------ describe

    def describe_configs(self, call: Call) -> Slices[Any]:
        """A resource that is asked for the same settings again is answered once."""
        wanted: dict[tuple[int, str, frozenset[str]], None] = {}
        for resource in call.request.resources:
            keys = yield from distinct(resource.configuration_keys or ())
            wanted[resource.resource_type, resource.resource_name, frozenset(keys)] = None
            yield
        results = yield from collect(self._described(call, *resource) for resource in wanted)
        return call.answer(results=results)

    def _described(self, call: Call, resource_type: int, name: str, keys: frozenset[str]) -> Any:
        """Without keys, all settings."""
        error, message, entries = ErrorCode.none, "", []
        try:
            self._check_authorized(call, DESCRIBE_CONFIGS, resource_type, name)
            entries = self._entries(resource_type, name)
        except KafkaError as problem:
            error, message = problem.code, problem.message
        return call.make(
            "DescribeConfigsResult",
            error_code=error,
            error_message=message,
            resource_type=resource_type,
            resource_name=name,
            configs=tuple(self._entry(call, entry) for entry in entries if not keys or entry.name in keys),
        )

    def _check_authorized(self, call: Call, operation: Operation, resource_type: int, name: str) -> None:
        """Topics and groups have permissions of their own, all else is the cluster's."""
        if self.broker.authorizer is None:
            return
        if resource_type == TOPIC:
            kind, code = ResourceType.TOPIC, ErrorCode.topic_authorization_failed
        elif resource_type == GROUP:
            kind, code = ResourceType.GROUP, ErrorCode.group_authorization_failed
        elif resource_type in (BROKER, BROKER_LOGGER, CLIENT_METRICS, SERVICE_ACCOUNT, API_KEY):
            kind, name, code = CLUSTER, CLUSTER_NAME, ErrorCode.cluster_authorization_failed
            if resource_type in (SERVICE_ACCOUNT, API_KEY):  # as for users
                operation = ALTER if operation is ALTER_CONFIGS else DESCRIBE
        else:
            return
        if not may(self.broker.authorizer, call, operation, kind, name):
            raise KafkaError(code)

    def _entries(self, resource_type: int, name: str) -> list[ConfigEntry]:
        broker = self.broker
        if resource_type == TOPIC:
            topic = broker.image.topic(name)
            if topic is None:
                wrong = name_problem(name)
                if wrong is not None:
                    raise KafkaError(ErrorCode.invalid_topic_exception, wrong)
                raise KafkaError(ErrorCode.unknown_topic_or_partition, f"Topic {name!r} does not exist.")
            return broker.settings.describe_topic(broker.image.topic_config(topic.topic_id))
        if resource_type == BROKER:
            if name == "":
                return broker.settings.describe_broker_default()
            self._check_own_id(name, " or empty string")
            return broker.settings.describe_broker()
        if resource_type == BROKER_LOGGER:
            if not name:
                raise KafkaError(ErrorCode.invalid_request, "Broker id must not be empty")
            self._check_own_id(name)
            return [
                ConfigEntry(logger, level, ConfigSource.BROKER_LOGGER, False, False, Type.UNKNOWN, "", ())
                for logger, level in log_levels.levels().items()
            ]
        if resource_type == GROUP:
            if not name:
                raise KafkaError(ErrorCode.invalid_request, "Group name must not be empty")
            return group_settings.describe(broker.settings, broker.image.configs.get(("group", name), {}))
        if resource_type == CLIENT_METRICS:
            if not name:
                raise KafkaError(
                    ErrorCode.invalid_request, "Client metrics subscription name must not be empty"
                )
            return subscriptions.describe(broker.image.configs.get((subscriptions.SCOPE, name), {}))
        if resource_type in (SERVICE_ACCOUNT, API_KEY):
            return self._account_entries(resource_type, name)
        raise KafkaError(ErrorCode.invalid_request, f"Unsupported resource type: {resource_type}.")

    def _account_entries(self, resource_type: int, name: str) -> list[ConfigEntry]:
        """Without the hash of the secret."""
        image = self.broker.image
        if resource_type == SERVICE_ACCOUNT:
            account = image.accounts.get(name)
            values = account and {"name": account.name, "description": account.description}
        else:
            key = image.api_keys.get(name)
            values = key and {
                "account": key.account_id,
                "created.ms": str(key.created_ms),
                "expires.ms": str(key.expires_ms),
                "description": key.description,
            }
        if values is None:
            raise KafkaError(ErrorCode.resource_not_found, f"There is no {SCOPES[resource_type]} {name!r}.")
        return [
            ConfigEntry(setting, value, ConfigSource.DYNAMIC_BROKER, False, False, Type.STRING, "", ())
            for setting, value in values.items()
        ]

    def _check_own_id(self, name: str, alternative: str = "") -> None:
        """Only a broker itself knows all its settings: a client has to send the request to the right one."""
        try:
            given = int(name)
        except ValueError:
            raise KafkaError(
                ErrorCode.invalid_request, f"Broker id must be an integer, but it is: {name}"
            ) from None
        if given != self.broker.node_id:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"Unexpected broker id, expected {self.broker.node_id}{alternative}, but received {name}",
            )

    def _entry(self, call: Call, entry: ConfigEntry) -> Any:
        request = call.request
        synonyms: tuple[Any, ...] = ()
        if request.include_synonyms:
            synonyms = tuple(
                call.make("DescribeConfigsSynonym", name=name, value=value, source=source)
                for name, value, source in entry.synonyms
            )
        document = (entry.doc or None) if call.version >= 3 and request.include_documentation else None
        return call.make(
            "DescribeConfigsResourceResult",
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
            synonyms=synonyms,
            config_type=entry.type,
            documentation=document,
        )

    # ------------------------------------------------------------------ alter

    async def alter_configs(self, call: Call) -> Any:
        wanted, answers = await call.in_slices(self._sort(call, incremental=False))
        resources = await call.in_slices(self._values(call.request.resources, wanted))
        return await self._altered(call, SetConfigs(resources, call.request.validate_only), wanted, answers)

    async def incremental_alter_configs(self, call: Call) -> Any:
        wanted, answers = await call.in_slices(self._sort(call, incremental=True))
        resources = await call.in_slices(self._changes(call.request.resources, wanted))
        return await self._altered(call, AlterConfigs(resources, call.request.validate_only), wanted, answers)

    def _values(
        self, resources: Any, wanted: dict[int, Resource]
    ) -> Slices[list[tuple[Resource, dict[str, str | None]]]]:
        found = []
        for index, key in wanted.items():
            values = yield from collect((config.name, config.value) for config in resources[index].configs)
            found.append((key, dict(values)))
            yield
        return found

    def _changes(
        self, resources: Any, wanted: dict[int, Resource]
    ) -> Slices[list[tuple[Resource, tuple[ConfigChange, ...]]]]:
        found = []
        for index, key in wanted.items():
            changes = yield from collect(
                ConfigChange(config.name, ConfigOp(config.config_operation), config.value)
                for config in resources[index].configs
            )
            found.append((key, changes))
            yield
        return found

    def _sort(
        self, call: Call, *, incremental: bool
    ) -> Slices[tuple[dict[int, Resource], dict[int, Result]]]:
        """Which resources go to the controller and which are answered here, by their index in the request."""
        request = call.request
        wanted: dict[int, Resource] = {}
        answers: dict[int, Result] = {}
        times: Counter[tuple[int, str]] = Counter()
        for resource in request.resources:
            times[resource.resource_type, resource.resource_name] += 1
            yield
        for index, resource in enumerate(request.resources):
            yield
            resource_type, name = resource.resource_type, resource.resource_name
            try:
                if times[resource_type, name] > 1:
                    raise KafkaError(ErrorCode.invalid_request, "Each resource must appear at most once.")
                self._check_authorized(call, ALTER_CONFIGS, resource_type, name)
                yield from _check_changes(resource.configs, incremental)
                if resource_type == BROKER_LOGGER and incremental and not call.is_forwarded:
                    yield from self._change_levels(name, resource.configs, request.validate_only)
                    answers[index] = OK
                    continue
                if resource_type not in SCOPES or (
                    resource_type in (SERVICE_ACCOUNT, API_KEY) and not incremental
                ):
                    raise KafkaError(ErrorCode.invalid_request, f"Unknown resource type {resource_type}")
                if resource_type == BROKER and name and not call.is_forwarded:
                    self._check_own_id(name)
                wanted[index] = Resource(SCOPES[resource_type], name)
            except KafkaError as problem:
                answers[index] = Result(problem.code, problem.message)
        return wanted, answers

    def _change_levels(self, name: str, configs: Any, validate_only: bool) -> Slices[None]:
        """Levels of loggers: all of them or none."""
        self._check_own_id(name)
        known = log_levels.levels()
        for config in configs:
            yield
            operation = ConfigOp(config.config_operation)
            if operation not in (ConfigOp.SET, ConfigOp.DELETE):
                raise KafkaError(
                    ErrorCode.invalid_request,
                    f"{operation.name} operation is not allowed for the BROKER_LOGGER resource",
                )
            if config.name not in known:
                raise KafkaError(ErrorCode.invalid_config, f"Logger {config.name} does not exist!")
            if operation == ConfigOp.SET and config.value not in log_levels.LEVELS:
                raise KafkaError(
                    ErrorCode.invalid_config,
                    f"The level of {config.name} cannot be {config.value}. Valid log levels are "
                    + ", ".join(sorted(log_levels.LEVELS)),
                )
            if operation == ConfigOp.DELETE and config.name == log_levels.ROOT:
                raise KafkaError(
                    ErrorCode.invalid_request, "Removing the log level of the root logger is not allowed"
                )
        if not validate_only:
            for config in configs:
                delete = config.config_operation == ConfigOp.DELETE
                log_levels.set_level(config.name, None if delete else config.value)

    async def _altered(
        self,
        call: Call,
        command: SetConfigs | AlterConfigs,
        wanted: dict[int, Resource],
        answers: dict[int, Result],
    ) -> Any:
        results: dict[Resource, Result] = {}
        refused: Result | None = None
        try:
            if not self.broker.controller.leading and not call.is_forwarded:
                results = await self._forward(call, command, wanted)
            elif wanted:
                results = await self.broker.controller.submit(command, is_large=call.is_large)
        except KafkaError as error:
            refused = Result(error.code, error.message)
        responses = await call.in_slices(
            collect(
                self._response(call, resource, answers.get(index) or refused or results[wanted[index]])
                for index, resource in enumerate(call.request.resources)
            )
        )
        return call.answer(responses=responses)

    async def _forward(
        self, call: Call, command: SetConfigs | AlterConfigs, wanted: dict[int, Resource]
    ) -> dict[Resource, Result]:
        """The controller's results; this broker's own settings are judged here first. KafkaError if the
        controller cannot be asked."""
        results = self._judge_own(command)
        left = {index: key for index, key in wanted.items() if key not in results}
        if not left:
            return results
        request = dataclasses.replace(
            call.request, resources=tuple(call.request.resources[index] for index in left)
        )
        answer = await self.broker.forwarding.forward_message(call, request)
        if answer is None:
            if not self.broker.controller.leading:
                raise KafkaError(ErrorCode.not_controller, "The controller does not answer.")
            return results | await self.broker.controller.submit(command, is_large=call.is_large)
        for key, response in zip(left.values(), answer.responses, strict=True):
            results[key] = Result(ErrorCode(response.error_code), response.error_message)
        return results

    def _judge_own(self, command: SetConfigs | AlterConfigs) -> dict[Resource, Result]:
        """Changes of this broker's settings that it cannot accept: only it knows the others."""
        own = Resource(SCOPES[BROKER], str(self.broker.node_id))
        resources: Any = [resource for resource in command.resources if resource[0] == own]
        if not resources:
            return {}
        judged = dataclasses.replace(command, resources=resources, validate_only=True)
        reply: Any = decide(self.broker.image, judged, self.broker.controller.context).reply
        return {key: result for key, result in reply.items() if not result.ok}

    def _response(self, call: Call, resource: Any, result: Result) -> Any:
        return call.make(
            "AlterConfigsResourceResponse",
            error_code=result.error,
            error_message=result.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )

    # ------------------------------------------------------------------ list

    def list_config_resources(self, call: Call) -> Slices[Any]:
        """Version 0 lists client metrics only."""
        if not may(self.broker.authorizer, call, DESCRIBE_CONFIGS, CLUSTER):
            return call.answer(error_code=ErrorCode.cluster_authorization_failed, config_resources=())
        types = set((yield from collect(call.request.resource_types))) if call.version >= 1 else set()
        if types - {TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, SERVICE_ACCOUNT, API_KEY}:
            return call.answer(error_code=ErrorCode.unsupported_version, config_resources=())
        everything = call.version >= 1 and not types
        if call.version == 0:
            types = {CLIENT_METRICS}
        found: list[tuple[int, str]] = []
        if everything or TOPIC in types:
            found += [(TOPIC, name) for name in self.broker.image.topics_by_name]
        for resource_type in (BROKER, BROKER_LOGGER):
            if everything or resource_type in types:
                found += [(resource_type, str(broker_id)) for broker_id in self.broker.image.brokers]
        if everything or GROUP in types:
            configs = self.broker.image.configs
            found += [
                (GROUP, name) for (scope, name), values in configs.items() if scope == "group" and values
            ]
        if everything or CLIENT_METRICS in types:
            found += [(CLIENT_METRICS, name) for name in subscribed(self.broker.image)]
        found += [(SERVICE_ACCOUNT, name) for name in self.broker.image.accounts if SERVICE_ACCOUNT in types]
        found += [(API_KEY, name) for name in self.broker.image.api_keys if API_KEY in types]
        resources = yield from collect(
            call.make("ConfigResource", resource_type=resource_type, resource_name=name)
            for resource_type, name in found
        )
        return call.answer(error_code=ErrorCode.none, config_resources=resources)


def _check_changes(configs: Any, incremental: bool) -> Slices[None]:
    """Refuse changes that are wrong for any resource."""
    names: set[str] = set()
    without_value = []
    unknown: int | None = None
    for config in configs:
        yield
        operation = config.config_operation if incremental else ConfigOp.SET
        names.add(config.name)
        if operation not in ConfigOp._value2member_map_ and unknown is None:
            unknown = operation
        if config.value is None and operation != ConfigOp.DELETE:
            without_value.append(config.name)
    if len(names) < len(configs):
        raise KafkaError(ErrorCode.invalid_request, "Error due to duplicate config keys")
    if unknown is not None:
        raise KafkaError(ErrorCode.invalid_request, f"Unknown operations type {unknown}")
    if without_value:
        raise KafkaError(
            ErrorCode.invalid_request, "Null value not supported for : " + ", ".join(without_value)
        )
