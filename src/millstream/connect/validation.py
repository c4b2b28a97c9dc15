"""Whether a configuration is right: the common settings, transforms and predicates, the connector's own, and
those of its converters, each with what is wrong with it.

Texts, and what stands at which setting, are Kafka's. A transform's settings are checked under their own names
and read under the name with the alias, so messages have either: `Invalid value ( for configuration regex`,
but `Missing required configuration "transforms.a.regex"`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from millstream.connect.api import Connector, SinkConnector, SourceConnector
from millstream.connect.config.config_def import (
    REQUIRED,
    ConfigDef,
    ConfigError,
    ConfigKey,
    ConfigValue,
    Validator,
    given,
    printed,
    with_prefix,
)
from millstream.connect.config.connector_config import SINK_CONFIG, SOURCE_CONFIG, check_sink
from millstream.connect.converters.base import CONVERTER_TYPE
from millstream.connect.converters.plugins import CONVERTERS, HEADERS_ONLY, converter_name, make_converter
from millstream.connect.plugin_versions import check_version
from millstream.connect.plugins import CONNECTORS, class_name_of
from millstream.connect.runtime.client_settings import (
    OVERRIDE_POLICY,
    OVERRIDES,
    compression,
    first_offset,
    policy_of,
    poll_records,
    refusal,
)
from millstream.connect.runtime.pipeline import names, worker_registry
from millstream.connect.transforms.plugins import PREDICATES, TRANSFORMS, find_predicate, find_transform
from millstream.settings.config_key import Importance
from millstream.settings.values import Password, Type

VERSION = "4.3.1"
"""Of Kafka's own plugins, and of the API."""


def validate(
    connector: type[Connector], whole: Mapping[str, str | None], worker: Mapping[str, str] | None = None
) -> list[ConfigValue]:
    """Every setting with what is wrong with it. `worker` has the worker's converters and registry."""
    worker = worker or {}
    settings = given(whole)
    found = _common(connector, worker).validate(whole)
    if issubclass(connector, SinkConnector):
        check_sink(settings, found)
    else:
        _check_source(connector, settings, found)
    _check_version(connector, settings, found)
    converters = _converters(settings, worker, found)
    nulls = whole.keys() - settings.keys()
    for name in nulls & {f"{what}.converter" for what in ("key", "value", "header")}:
        found[f"{name}.plugin.version"].visible = False
    for kind in (_TRANSFORMS, _PREDICATES):
        found |= {value.key.name: value for value in _plugins(whole, kind)}
    own = connector.validate(settings)
    found |= own | converters
    for name in nulls:
        if name in own:
            # For Kafka this has a value; whether null may be one is said by the setting's validator.
            found[name] = ConfigDef([own[name].key]).validate({name: None})[name]
            continue
        value = found.setdefault(name, ConfigValue(ConfigKey(name, Type.UNKNOWN, None, Importance.LOW, "")))
        value.errors.append("Null value can not be supplied as the configuration value.")
        value.value = None
    return [*found.values(), *_overrides(settings, policy_of(worker.get(OVERRIDE_POLICY, "All")))]


def config_of(connector: type[Connector]) -> ConfigDef:
    """All settings of a connector: its own, then the common ones."""
    own, common = connector.config.keys, _common(connector, {}).keys
    return ConfigDef((common | own)[name] for name in own | common)


def converter_config(full: str) -> ConfigDef:
    own = CONVERTERS[full].config
    return own if full in HEADERS_ONLY else ConfigDef([CONVERTER_TYPE]) + own


def _common(connector: type[Connector], worker: Mapping[str, str]) -> ConfigDef:
    """The common settings with this connector's version and the worker's converters as defaults."""
    common = SINK_CONFIG if issubclass(connector, SinkConnector) else SOURCE_CONFIG
    defaults: dict[str, str] = {"connector.plugin.version": connector.version}
    for what in ("key", "value", "header"):
        name = f"{what}.converter"
        if name in worker:
            defaults[name] = converter_name(worker[name]) or worker[name]
            defaults[f"{name}.plugin.version"] = VERSION
    return ConfigDef(
        replace(key, default=defaults.get(name, key.default)) for name, key in common.keys.items()
    )


def _check_source(
    connector: type[Connector], settings: Mapping[str, str], found: dict[str, ConfigValue]
) -> None:
    assert issubclass(connector, SourceConnector)
    boundary = str(settings.get("transaction.boundary", "")).lower()
    if boundary == "connector" and not connector.defines_transactions:
        found["transaction.boundary"].errors.append(
            "The connector does not support connector-defined transaction boundaries with the given "
            "configuration. Please reconfigure it to use a different transaction boundary definition."
        )
    required = str(settings.get("exactly.once.support", "")).lower() == "required"
    if required and not connector.exactly_once:
        found["exactly.once.support"].errors.append(
            "The connector does not support exactly-once semantics with the provided configuration."
        )


def _check_version(
    connector: type[Connector], settings: Mapping[str, str], found: dict[str, ConfigValue]
) -> None:
    name = "connector.plugin.version"
    found[name].recommended_values = [connector.version]
    try:
        check_version(class_name_of(connector), settings.get(name), connector.version)
    except ConfigError as error:
        found["connector.class"].errors.append(str(error))
        found[name].errors.append(str(error))


def _converters(
    settings: Mapping[str, str], worker: Mapping[str, str], found: dict[str, ConfigValue]
) -> dict[str, ConfigValue]:
    """Checks which classes the converters are; the settings of those that the connector has of its own."""
    own: dict[str, ConfigValue] = {}
    for what in ("key", "value", "header"):
        name = f"{what}.converter"
        value, version = found[name], found[f"{name}.plugin.version"]
        known = [one for one in sorted(CONVERTERS) if what == "header" or one not in HEADERS_ONLY]
        value.recommended_values = list(known)
        full = converter_name(settings.get(name, worker.get(name, "")))
        if name not in settings:
            version.recommended_values = [VERSION] if full else []
            continue
        if full is None or (full in HEADERS_ONLY and what != "header"):
            interface = "HeaderConverter" if what == "header" else "Converter"
            value.errors.append(_not_a_class(settings[name], name, interface, ()))
            if not _exists(settings[name]):
                value.value, version.visible = None, False
            version.value = settings.get(f"{name}.plugin.version")
            version.key = replace(version.key, default=None)
            continue
        value.value = full
        version.recommended_values = [VERSION]
        version.key = replace(version.key, default=VERSION)
        version.value = settings.get(f"{name}.plugin.version", VERSION)
        try:
            check_version(full, settings.get(f"{name}.plugin.version"), VERSION)
        except ConfigError as error:
            value.errors.append(str(error))
            version.errors.append(str(error))
        beside = with_prefix(settings, f"{name}.")
        checked = converter_config(full).validate({"converter.type": what, **beside})
        for key_name, one in checked.items():
            key = replace(one.key, name=f"{name}.{key_name}", display_name=one.key.label)
            own[key.name] = ConfigValue(key, one.value, one.recommended_values, one.errors)
        if not any(one.errors for one in checked.values()):
            try:
                make_converter(full, beside, is_key=what == "key", registry=worker_registry(worker))
            except ConfigError as error:
                value.errors.append(f"Invalid value {settings[name]} for configuration {name}: {error}")
    return own


@dataclass(frozen=True)
class _Kind:
    """Transforms or predicates."""

    setting: str
    word: str
    known: Mapping[str, Any]

    def config(self, name: str) -> ConfigDef:
        return find_transform(name).config if self.word == "Transformation" else find_predicate(name).config


_TRANSFORMS = _Kind("transforms", "Transformation", TRANSFORMS)
_PREDICATES = _Kind("predicates", "Predicate", PREDICATES)
_CONDITION = (
    ConfigKey(
        "negate",
        Type.BOOLEAN,
        False,
        Importance.MEDIUM,
        "Whether records are transformed for which the predicate does not hold.",
    ),
    ConfigKey(
        "predicate",
        Type.STRING,
        None,
        Importance.MEDIUM,
        "Which records are transformed: the alias of a predicate; without one, all.",
    ),
)


def _plugins(settings: Mapping[str, str | None], kind: _Kind) -> Iterable[ConfigValue]:
    """The settings of each transform or predicate that is named, under its alias."""
    for alias in dict.fromkeys(names(settings.get(kind.setting))):
        prefix = f"{kind.setting}.{alias}."
        group = f"{kind.setting.capitalize()}: {alias}"
        value, version = _type_and_version(alias, prefix, group, kind).validate(settings).values()
        value.recommended_values = sorted(kind.known)
        yield value
        yield version
        class_name = settings.get(f"{prefix}type")
        if class_name is None:
            continue
        try:
            config = kind.config(class_name)
        except ConfigError:
            nested = [f"{class_name}${part}" for part in ("Key", "Value")]
            meant = [one for one in nested if one in kind.known]
            value.errors.append(_not_a_class(class_name, f"{prefix}type", kind.word, meant))
            if not (meant or _exists(class_name)):
                value.value = None
            continue
        version.key = replace(version.key, default=VERSION)
        version.value = version.value or VERSION
        version.recommended_values = [VERSION]
        try:
            check_version(class_name, settings.get(f"{prefix}plugin.version"), VERSION)
        except ConfigError as error:
            value.errors.append(str(error))
            version.errors.append(str(error))
        if kind is _TRANSFORMS:
            if f"{prefix}negate" in settings and f"{prefix}predicate" not in settings:
                value.errors.append(
                    f"Config '{prefix}negate' was provided but there is no config '{prefix}predicate' "
                    "defining a predicate to be negated."
                )
            config = ConfigDef(_CONDITION) + config
        yield from _with_prefix(config, prefix, group).validate(settings).values()


def _type_and_version(alias: str, prefix: str, group: str, kind: _Kind) -> ConfigDef:
    return ConfigDef(
        ConfigKey(
            f"{prefix}{name}",
            of_type,
            default,
            Importance.HIGH,
            f"The {what} of {alias}.",
            group=group,
            order=order,
            width="LONG",
            display_name=f"{kind.word} {label} for {alias}",
        )
        for order, (name, of_type, default, what, label) in enumerate(
            (
                ("type", Type.CLASS, REQUIRED, "class", "type"),
                ("plugin.version", Type.STRING, None, "version", "version"),
            )
        )
    )


def _with_prefix(config: ConfigDef, prefix: str, group: str) -> ConfigDef:
    """The same settings below an alias; validators know them by their own names."""

    def checked(own: str, validator: Validator | None) -> Validator | None:
        return None if validator is None else lambda _name, value: validator(own, value)

    return ConfigDef(
        replace(
            key,
            name=prefix + own,
            validator=checked(own, key.validator),
            group=group,
            order=order,
            display_name=key.label,
        )
        for order, (own, key) in enumerate(config.keys.items(), 2)
    )


def _exists(class_name: str) -> bool:
    return any(class_name in table for table in (CONNECTORS, CONVERTERS, TRANSFORMS, PREDICATES))


def _not_a_class(class_name: str, setting: str, interface: str, meant: Iterable[str]) -> str:
    if meant:
        return f"This class is abstract and cannot be created. Did you mean {', '.join(meant)}?"
    if _exists(class_name):
        return f"Class class {class_name} does not implement the {interface} interface"
    return str(ConfigError.of(setting, class_name, f"Class {class_name} could not be found."))


def _overrides(settings: Mapping[str, str], policy: str) -> Iterable[ConfigValue]:
    """Settings of clients, which have no definition of ours."""
    for name, text in settings.items():
        if name.startswith(OVERRIDES):
            key = ConfigKey(name, Type.UNKNOWN, None, Importance.LOW, "")
            yield ConfigValue(key, text, errors=_wrong_override(name, settings, policy))


def _wrong_override(name: str, settings: Mapping[str, str], policy: str) -> list[str]:
    refused = refusal(name, policy)
    if refused is not None:
        return [refused]
    own = {name.partition(".override.")[2]: settings[name]}
    try:
        compression(own)
        poll_records(own)
        first_offset(own)
    except ConfigError as error:
        return [str(error)]
    return []


def body(connector: type[Connector], values: list[ConfigValue]) -> dict[str, Any]:
    """What PUT /connector-plugins/.../validate answers."""
    groups = list(dict.fromkeys(value.key.group for value in values if value.key.group))
    return {
        "name": class_name_of(connector),
        "error_count": sum(len(value.errors) for value in values),
        "groups": groups,
        "configs": [{"definition": definition(value.key), "value": _value(value)} for value in values],
    }


def definition(key: ConfigKey) -> dict[str, Any] | None:
    if key.type is Type.UNKNOWN:
        return None
    required = key.default is REQUIRED
    return {
        "name": key.name,
        "type": key.type.name,
        "required": required,
        "default_value": None if required or key.default is None else _text(key.default),
        "importance": key.importance.name,
        "documentation": key.doc,
        "group": key.group,
        "order_in_group": key.order,
        "width": key.width,
        "display_name": key.label,
        "dependents": list(key.dependents),
    }


def _value(value: ConfigValue) -> dict[str, Any]:
    return {
        "name": value.key.name,
        "value": None if value.value is None else _text(value.value),
        "recommended_values": [_text(one) for one in value.recommended_values],
        "errors": value.errors,
        "visible": value.visible,
    }


def _text(value: Any) -> str:
    if isinstance(value, Password):
        return "[hidden]"
    return ",".join(value) if isinstance(value, tuple) else printed(value)


def error_text(values: list[ConfigValue]) -> str | None:
    """The text of a 400; None where nothing is wrong."""
    errors = [error for value in values for error in value.errors]
    if not errors:
        return None
    listed = "".join(f"\n{error}" for error in errors)
    return (
        f"Connector configuration is invalid and contains the following {len(errors)} error(s):{listed}\n"
        "You can also find the above list of errors at the endpoint "
        "`/connector-plugins/{connectorType}/config/validate`"
    )
