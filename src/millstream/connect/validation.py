"""Whether a configuration is right: the connector's settings, the common ones, transforms and converters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.connect.api import Connector, SinkConnector
from millstream.connect.config.config_def import ConfigDef, ConfigError, ConfigKey, ConfigValue, printed
from millstream.connect.config.connector_config import SINK_CONFIG, SOURCE_CONFIG, check_sink
from millstream.connect.converters.plugins import make_converter
from millstream.connect.plugins import class_name_of
from millstream.connect.runtime.pipeline import names, with_prefix
from millstream.connect.transforms.plugins import find_predicate, find_transform
from millstream.settings.config_key import Importance
from millstream.settings.values import Password, Type


def validate(connector: type[Connector], settings: Mapping[str, str]) -> list[ConfigValue]:
    """Every setting with what is wrong with it: the common ones, transforms and predicates, its own."""
    common = SINK_CONFIG if issubclass(connector, SinkConnector) else SOURCE_CONFIG
    found = common.validate(settings)
    if issubclass(connector, SinkConnector):
        check_sink(settings, found)
    _check_converters(settings, found)
    for kind in ("transforms", "predicates"):
        found |= {value.key.name: value for value in _plugins(settings, kind)}
    own = connector.validate(dict(settings))
    return list((found | own).values())


def _check_converters(settings: Mapping[str, str], found: dict[str, ConfigValue]) -> None:
    for what in ("key", "value", "header"):
        name = f"{what}.converter"
        if name not in settings:
            continue
        try:
            make_converter(settings[name], with_prefix(settings, f"{name}."), is_key=what == "key")
        except ConfigError as error:
            found[name].errors.append(f"Invalid value {settings[name]} for configuration {name}: {error}")


def _plugins(settings: Mapping[str, str], kind: str) -> list[ConfigValue]:
    """The settings of each transform or predicate that is named, under its alias."""
    values: list[ConfigValue] = []
    group = kind.capitalize()
    for order, alias in enumerate(dict.fromkeys(names(settings.get(kind)))):
        prefix = f"{kind}.{alias}."
        own = with_prefix(settings, prefix)
        type_key = ConfigKey(
            f"{prefix}type",
            Type.STRING,
            None,
            Importance.HIGH,
            "Class of this one.",
            group=f"{group}: {alias}",
            order=order,
            width="LONG",
            display_name=f"{'Transformation' if kind == 'transforms' else 'Predicate'} type for {alias}",
        )
        class_name = own.get("type")
        value = ConfigValue(type_key, class_name)
        values.append(value)
        try:
            config = _config_of(kind, class_name)
        except ConfigError as error:
            value.errors.append(str(error))
            continue
        for key_name, one in config.validate(own).items():
            renamed = ConfigKey(
                **{
                    slot: getattr(one.key, slot)
                    for slot in ("type", "default", "importance", "doc", "validator", "width")
                },
                name=prefix + key_name,
                group=f"{group}: {alias}",
            )
            values.append(ConfigValue(renamed, one.value, one.recommended_values, one.errors))
    return values


def _config_of(kind: str, class_name: str | None) -> ConfigDef:
    if not class_name:
        raise ConfigError(
            f"Not a {'Transformation' if kind == 'transforms' else 'Predicate'}: the type is missing"
        )
    return find_transform(class_name).config if kind == "transforms" else find_predicate(class_name).config


def body(connector: type[Connector], values: list[ConfigValue]) -> dict[str, Any]:
    """What PUT /connector-plugins/.../validate answers."""
    groups = list(dict.fromkeys(value.key.group for value in values if value.key.group))
    return {
        "name": class_name_of(connector),
        "error_count": sum(bool(value.errors) for value in values),
        "groups": groups,
        "configs": [{"definition": definition(value.key), "value": _value(value)} for value in values],
    }


def definition(key: ConfigKey) -> dict[str, Any]:
    required = repr(key.default) == "required"
    return {
        "name": key.name,
        "type": key.type.name,
        "required": required,
        "default_value": None if required or key.default is None else _text(key.default),
        "importance": key.importance.name,
        "documentation": key.doc,
        "group": key.group,
        "width": key.width,
        "display_name": key.label,
        "dependents": list(key.dependents),
        "order": key.order,
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
