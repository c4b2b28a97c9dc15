"""`ConfigDef`: what settings a plugin has, what counts, and what a user is told about a wrong one.

Texts of errors are Kafka's: people search for them, and the validate endpoint returns them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from millstream.connect.errors import ConnectError
from millstream.settings.config_key import Importance
from millstream.settings.values import InvalidSetting, Type, Value
from millstream.settings.values import parse as parse_text

Validator = Callable[[str, Any], None]
"""Raises ConfigError where a setting may not have a value. `str()` of it is Kafka's phrase for the docs."""


class ConfigError(ConnectError):
    java_class = "org.apache.kafka.common.config.ConfigException"

    @classmethod
    def of(cls, name: str, value: Any, reason: str) -> ConfigError:
        return cls(f"Invalid value {printed(value)} for configuration {name}: {reason}")


def printed(value: Any) -> str:
    """A value as Java prints it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(printed, value)) + "]"
    return str(value)


class _Required:
    """No default: the setting has to be there."""

    def __repr__(self) -> str:
        return "required"


REQUIRED: Final = _Required()


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A row of the table. `default` is a typed value, or REQUIRED."""

    name: str
    type: Type
    default: Value | _Required
    importance: Importance
    doc: str
    validator: Validator | None = None
    group: str | None = None
    order: int = -1
    width: str = "NONE"
    display_name: str = ""
    dependents: tuple[str, ...] = ()
    recommended: Callable[[Mapping[str, Any]], list[Any]] | None = None
    visible: Callable[[Mapping[str, Any]], bool] | None = None

    @property
    def label(self) -> str:
        return self.display_name or self.name


@dataclass(slots=True)
class ConfigValue:
    """What the validate endpoint says of one setting."""

    key: ConfigKey
    value: Any = None
    recommended_values: list[Any] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    visible: bool = True


class ConfigDef:
    def __init__(self, keys: Iterable[ConfigKey] = ()) -> None:
        self.keys = {key.name: key for key in keys}

    def __add__(self, other: ConfigDef) -> ConfigDef:
        return ConfigDef([*self.keys.values(), *other.keys.values()])

    def parse(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """All settings of the table, typed and checked. The first wrong one is a ConfigError."""
        return {name: self._parsed(key, settings) for name, key in self.keys.items()}

    def _parsed(self, key: ConfigKey, settings: Mapping[str, Any]) -> Any:
        value = self._given(key, settings)
        if isinstance(key.validator, ValidList) and isinstance(value, tuple):
            value = tuple(dict.fromkeys(value))  # doubles are dropped before the check
        if key.validator is not None:
            key.validator(key.name, value)
        return value

    @staticmethod
    def _given(key: ConfigKey, settings: Mapping[str, Any]) -> Any:
        if key.name in settings:
            return parse(key.name, key.type, settings[key.name])
        if key.default is REQUIRED:
            raise ConfigError(f'Missing required configuration "{key.name}" which has no default value.')
        return key.default

    def validate(self, settings: Mapping[str, Any]) -> dict[str, ConfigValue]:
        """Every setting with all that is wrong with it."""
        found = {name: ConfigValue(key) for name, key in self.keys.items()}
        parsed: dict[str, Any] = {}
        for name, key in self.keys.items():
            entry = found[name]
            try:
                entry.value = self._given(key, settings)
            except ConfigError as error:
                entry.errors.append(str(error))
            if key.validator is not None:
                try:
                    key.validator(name, entry.value)
                except ConfigError as error:
                    entry.errors.append(str(error))
            parsed[name] = entry.value
        for name, key in self.keys.items():
            if key.recommended is not None:
                found[name].recommended_values = key.recommended(parsed)
            if key.visible is not None:
                found[name].visible = key.visible(parsed)
        return found


def parse(name: str, kind: Type, value: Any) -> Any:
    """The typed value of what stands in a configuration: text, or JSON's own numbers and booleans."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return parse_text(name, kind, value)
        except InvalidSetting as error:
            raise ConfigError.of(name, value, error.reason) from None
    if kind is Type.BOOLEAN and isinstance(value, bool):
        return value
    if kind in (Type.INT, Type.SHORT, Type.LONG, Type.DOUBLE) and isinstance(value, int | float):
        return value
    if kind is Type.LIST and isinstance(value, list | tuple):
        return tuple(value)
    raise ConfigError.of(name, value, "Expected value to be a string")


# --- validators ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Range:
    low: float | None = None
    high: float | None = None

    def __call__(self, name: str, value: Any) -> None:
        if value is None:
            raise ConfigError.of(name, value, "Value must be non-null")
        if self.low is not None and value < self.low:
            raise ConfigError.of(name, value, f"Value must be at least {self.low}")
        if self.high is not None and value > self.high:
            raise ConfigError.of(name, value, f"Value must be no more than {self.high}")

    def __str__(self) -> str:
        inside = [str(self.low)] if self.low is not None else []
        inside += ["..."] + ([str(self.high)] if self.high is not None else [])
        return f"[{','.join(inside)}]"


@dataclass(frozen=True, slots=True)
class ValidString:
    allowed: tuple[str, ...]

    def __call__(self, name: str, value: Any) -> None:
        if value not in self.allowed:
            raise ConfigError.of(name, value, f"String must be one of: {', '.join(self.allowed)}")

    def __str__(self) -> str:
        return f"[{', '.join(self.allowed)}]"


@dataclass(frozen=True, slots=True)
class CaseInsensitiveValidString:
    allowed: tuple[str, ...]

    def __call__(self, name: str, value: Any) -> None:
        if value is None or value.upper() not in self.allowed:
            reason = f"String must be one of (case insensitive): {', '.join(self.allowed)}"
            raise ConfigError.of(name, value, reason)

    def __str__(self) -> str:
        return f"(case insensitive) [{', '.join(self.allowed)}]"


@dataclass(frozen=True, slots=True)
class ValidList:
    """A list without empty entries; doubles are dropped when it is parsed."""

    may_be_empty: bool = True
    allowed: tuple[str, ...] = ()

    def __call__(self, name: str, value: Any) -> None:
        if value is None:
            raise ConfigError(f"Configuration '{name}' values must not be null.")
        if not value and not self.may_be_empty:
            valid = ValidString(self.allowed) if self.allowed else "any non-empty value"
            raise ConfigError(f"Configuration '{name}' must not be empty. Valid values include: {valid}")
        if len(set(value)) != len(value):
            raise ConfigError(f"Configuration '{name}' values must not be duplicated.")
        for entry in value:
            if not entry:
                raise ConfigError(f"Configuration '{name}' values must not be empty.")
            if self.allowed:
                ValidString(self.allowed)(name, entry)

    def __str__(self) -> str:
        return str(ValidString(self.allowed)) if self.allowed else ""


class NonEmptyString:
    def __call__(self, name: str, value: Any) -> None:
        if value == "":
            raise ConfigError.of(name, value, "String must be non-empty")

    def __str__(self) -> str:
        return "non-empty string"


class NonEmptyList:
    def __call__(self, name: str, value: Any) -> None:
        if not value:
            raise ConfigError.of(name, value, "Empty list")

    def __str__(self) -> str:
        return "non-empty list"


class NonNull:
    def __call__(self, name: str, value: Any) -> None:
        if value is None:
            raise ConfigError.of(name, "null", "entry must be non null")

    def __str__(self) -> str:
        return "non-null string"


@dataclass(frozen=True, slots=True)
class AllOf:
    validators: tuple[Validator, ...]

    def __call__(self, name: str, value: Any) -> None:
        for validator in self.validators:
            validator(name, value)

    def __str__(self) -> str:
        return ", ".join(map(str, self.validators))


@dataclass(frozen=True, slots=True)
class CheckedBy:
    """A function as validator, with the phrase that describes it."""

    check: Validator
    phrase: str

    def __call__(self, name: str, value: Any) -> None:
        self.check(name, value)

    def __str__(self) -> str:
        return self.phrase


def given(settings: Mapping[str, str | None]) -> dict[str, str]:
    """Those that have a value."""
    return {name: text for name, text in settings.items() if text is not None}


def with_prefix(settings: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name[len(prefix) :]: text for name, text in settings.items() if name.startswith(prefix)}
