"""Settings as clients see and change them: DescribeConfigs 1 to 4, AlterConfigs 0 to 2, IncrementalAlterConfigs 0 to 1,
ListConfigResources 0 to 1.

Resources are topics, brokers (the empty name is the default of all brokers) and groups. Left out: broker loggers and
client metrics; they are refused as unsupported.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from millstream.broker.dispatch import Api, Call
from millstream.broker.groups import group_settings
from millstream.cluster.commands import AlterConfigs, ConfigChange, ConfigOp, Resource, Result, SetConfigs
from millstream.cluster.topics import name_problem
from millstream.settings.resolve import ConfigEntry
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.server import Broker

TOPIC, BROKER, GROUP = 2, 4, 32
SCOPES = {TOPIC: "topic", BROKER: "broker", GROUP: "group"}


class ConfigsApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def apis(self) -> list[Api]:
        return [
            Api(32, "DescribeConfigs", 1, 4, self.describe_configs),
            Api(33, "AlterConfigs", 0, 2, self.alter_configs),
            Api(44, "IncrementalAlterConfigs", 0, 1, self.incremental_alter_configs),
            Api(74, "ListConfigResources", 0, 1, self.list_config_resources),
        ]

    # ------------------------------------------------------------------ describe

    def describe_configs(self, call: Call) -> Any:
        return call.answer(
            results=tuple(self._described(call, resource) for resource in call.request.resources)
        )

    def _described(self, call: Call, resource: Any) -> Any:
        error, message, entries = ErrorCode.none, None, []
        try:
            entries = self._entries(resource.resource_type, resource.resource_name)
        except KafkaError as problem:
            error, message = problem.code, problem.message
        keys = resource.configuration_keys
        return call.make(
            "DescribeConfigsResult",
            error_code=error,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=tuple(self._entry(call, entry) for entry in entries if not keys or entry.name in keys),
        )

    def _entries(self, kind: int, name: str) -> list[ConfigEntry]:
        broker = self.broker
        if kind == TOPIC:
            topic = broker.image.topic(name)
            if topic is None:
                wrong = name_problem(name)
                if wrong is not None:
                    raise KafkaError(ErrorCode.invalid_topic_exception, wrong)
                raise KafkaError(ErrorCode.unknown_topic_or_partition, f"Topic {name!r} does not exist.")
            return broker.settings.describe_topic(broker.image.topic_config(topic.topic_id))
        if kind == BROKER:
            if name == "":
                return broker.settings.describe_broker_default()
            if name != str(broker.node_id):
                raise KafkaError(
                    ErrorCode.invalid_request,
                    f"Unexpected broker id, expected {broker.node_id} or the empty name, but received {name!r}.",
                )
            return broker.settings.describe_broker()
        if kind == GROUP:
            if not name:
                raise KafkaError(ErrorCode.invalid_request, "Group name must not be empty")
            return group_settings.describe(broker.settings, broker.image.configs.get(("group", name), {}))
        raise KafkaError(ErrorCode.invalid_request, f"Unsupported resource type: {kind}.")

    def _entry(self, call: Call, entry: ConfigEntry) -> Any:
        request = call.request
        synonyms: tuple[Any, ...] = ()
        if request.include_synonyms:
            synonyms = tuple(
                call.make("DescribeConfigsSynonym", name=name, value=value, source=source)
                for name, value, source in entry.synonyms
            )
        document = entry.doc if call.version >= 3 and request.include_documentation else None
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
        request = call.request
        good, refused = self._sort(request.resources)
        command = SetConfigs(
            [(key, {config.name: config.value for config in resource.configs}) for key, resource in good],
            request.validate_only,
        )
        return await self._altered(call, command, good, refused)

    async def incremental_alter_configs(self, call: Call) -> Any:
        request = call.request
        good, refused = self._sort(request.resources)
        changes = []
        kept = []
        for key, resource in good:
            operations = [config.config_operation for config in resource.configs]
            if any(operation not in ConfigOp._value2member_map_ for operation in operations):
                refused.append((resource, Result(ErrorCode.invalid_request, "Unknown config operation.")))
                continue
            names = [config.name for config in resource.configs]
            if len(set(names)) < len(names):
                refused.append(
                    (resource, Result(ErrorCode.invalid_request, "A setting is named more than once."))
                )
                continue
            kept.append((key, resource))
            changes.append(
                (key, [ConfigChange(c.name, ConfigOp(c.config_operation), c.value) for c in resource.configs])
            )
        return await self._altered(call, AlterConfigs(changes, request.validate_only), kept, refused)

    def _sort(self, resources: Any) -> tuple[list[tuple[Resource, Any]], list[tuple[Any, Result]]]:
        """Which resources go to the controller, and which are refused here."""
        good: list[tuple[Resource, Any]] = []
        refused: list[tuple[Any, Result]] = []
        times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
        for resource in resources:
            kind, name = resource.resource_type, resource.resource_name
            key = Resource(SCOPES.get(kind, ""), name)
            if times[kind, name] > 1:
                text = "Each resource must appear at most once."
                refused.append((resource, Result(ErrorCode.invalid_request, text)))
            elif kind not in SCOPES:
                refused.append(
                    (resource, Result(ErrorCode.invalid_request, f"Unsupported resource type: {kind}."))
                )
            elif kind == BROKER and name not in ("", str(self.broker.node_id)):
                text = f"Unexpected broker id, expected {self.broker.node_id}, but received {name!r}."
                refused.append((resource, Result(ErrorCode.invalid_request, text)))
            else:
                good.append((key, resource))
        return good, refused

    async def _altered(
        self,
        call: Call,
        command: SetConfigs | AlterConfigs,
        good: list[tuple[Resource, Any]],
        refused: list[tuple[Any, Result]],
    ) -> Any:
        try:
            results = await self.broker.controller.submit(command)
        except KafkaError as error:
            results = {key: Result(error.code, error.message) for key, _ in good}
        answers = [(resource, results[key]) for key, resource in good] + refused
        return call.answer(
            responses=tuple(
                call.make(
                    "AlterConfigsResourceResponse",
                    error_code=result.error,
                    error_message=result.message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
                for resource, result in answers
            )
        )

    # ------------------------------------------------------------------ list

    def list_config_resources(self, call: Call) -> Any:
        """Version 0 lists client metrics only, of which there are none."""
        asked = set(call.request.resource_types) if call.version >= 1 else set()
        if asked - {TOPIC, BROKER, 8, 16, 32}:
            return call.answer(error_code=ErrorCode.unsupported_version, config_resources=())
        everything = call.version >= 1 and not asked
        found = []
        if everything or TOPIC in asked:
            found += [(TOPIC, name) for name in self.broker.image.topics_by_name]
        for kind in (BROKER, 8):  # 8: the logger of each broker has the broker's name
            if everything or kind in asked:
                found += [(kind, str(broker_id)) for broker_id in self.broker.image.brokers]
                if kind == BROKER and self.broker.image.broker_config():
                    found.append((BROKER, ""))
        if everything or GROUP in asked:
            configs = self.broker.image.configs
            found += [
                (GROUP, name) for (scope, name), values in configs.items() if scope == "group" and values
            ]
        return call.answer(
            error_code=ErrorCode.none,
            config_resources=tuple(
                call.make("ConfigResource", resource_type=kind, resource_name=name) for kind, name in found
            ),
        )
