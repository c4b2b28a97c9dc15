"""From settings as people wrote them to the values that count.

A broker setting may be given at four levels. The first that has it wins:

    this broker's dynamic settings     `configs --alter --entity-type brokers --entity-name 1`
    the dynamic default of all brokers `... --entity-default`
    the broker's file and command line (static)
    the table's default

A topic setting may be overridden by the topic; otherwise it comes from its broker synonyms, by the same rule.
Some topic settings have several synonyms in different units, of which the first that has a value counts.

`BrokerSettings` is immutable: a dynamic change makes a new one with `with_dynamic`. What a static file gets
wrong is an error; what the metadata log holds and this version cannot use is left out and listed in
`problems`, because a broker must be able to start with a metadata log that a newer version wrote.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from millstream.settings.config_def import BROKER, TOPIC, base_config_key, has_listener_prefix, kafka_only
from millstream.settings.config_key import ConfigKey, Mode
from millstream.settings.log_config import LogConfig
from millstream.settings.suggestions import did_you_mean
from millstream.settings.validate import check_topic_values, topic_value, validate_broker_config
from millstream.settings.values import InvalidSetting, Type, Value, to_text

__all__ = ["BrokerSettings", "ConfigEntry", "ConfigSource", "ConfigSynonym", "InvalidSetting"]


class ConfigSource(IntEnum):
    """Where a value comes from, in the numbers of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One setting as DescribeConfigs answers it."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: Type
    doc: str
    synonyms: tuple[ConfigSynonym, ...]


# Broker settings that say the same in different units, by precedence.
_FAMILIES = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
)
_SYNONYMS: dict[str, tuple[str, ...]] = {name: family for family in _FAMILIES for name in family}
_SYNONYMS["log.flush.interval.ms"] = ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")

_LOG_FIELDS = {
    name: name.replace(".", "_") for name in TOPIC if name.replace(".", "_") in LogConfig.__slots__
}


class BrokerSettings:
    """All settings of one broker. `static` is what its file and command line say; unknown names are kept."""

    def __init__(self, static: Mapping[str, str] | None = None) -> None:
        self.static: dict[str, str] = dict(static or {})
        self.cluster_default: dict[str, str] = {}
        self.this_broker: dict[str, str] = {}
        self.problems: tuple[InvalidSetting, ...] = ()
        self._values: dict[str, Value] = {}
        self._default_log_config: LogConfig | None = None
        self._unite_ids()
        for name, text in self.static.items():
            setting = base_config_key(name)
            if setting is not None:
                setting.parse(text, name)
        check_together(self)

    def _unite_ids(self) -> None:
        """node.id and broker.id are one setting under two names."""
        if self.static.get("broker.id", "").strip() == "-1":
            del self.static["broker.id"]
        node, broker = self.static.get("node.id"), self.static.get("broker.id")
        if node is not None and broker is not None and node.strip() != broker.strip():
            message = f"node.id is {node} and broker.id is {broker}; they must be the same number"
            raise InvalidSetting("broker.id", broker, "differs from node.id", message)
        given = node if node is not None else broker
        if given is not None:
            self.static["node.id"] = self.static["broker.id"] = given

    def with_dynamic(
        self, cluster_default: Mapping[str, str], this_broker: Mapping[str, str]
    ) -> BrokerSettings:
        """The same broker with these dynamic settings instead of the former ones."""
        changed = BrokerSettings.__new__(BrokerSettings)
        changed.static = self.static
        changed._values = {}
        changed._default_log_config = None
        problems: list[InvalidSetting] = []
        changed.cluster_default = _usable(cluster_default, False, problems)
        changed.this_broker = _usable(this_broker, True, problems)
        changed.problems = tuple(problems)
        return changed

    def validate_dynamic(self, cluster_default: Mapping[str, str], this_broker: Mapping[str, str]) -> None:
        """Raise InvalidSetting unless all these dynamic settings can count together, and with the static
        ones."""
        candidate = self.with_dynamic(cluster_default, this_broker)
        if candidate.problems:
            raise candidate.problems[0]
        check_together(candidate)

    # Values of broker settings

    def text(self, name: str) -> str | None:
        """The text that counts for a broker setting; None when it is not set and has no default."""
        for given in (self.this_broker, self.cluster_default, self.static):
            if name in given:
                return given[name]
        setting = BROKER.get(name)
        return None if setting is None else setting.default

    def value(self, name: str) -> Value:
        """The typed value of a broker setting. The getters below are the same, each with its own type."""
        try:
            return self._values[name]
        except KeyError:
            setting = base_config_key(name)
            if setting is None:
                raise KeyError(f"no such broker setting: {name}") from None
            text = self.text(name)
            found = self._values[name] = None if text is None else setting.parse(text, name)
            return found

    def integer(self, name: str) -> int:
        value = self.value(name)
        assert isinstance(value, int), name
        return value

    def boolean(self, name: str) -> bool:
        value = self.value(name)
        assert isinstance(value, bool), name
        return value

    def number(self, name: str) -> float:
        value = self.value(name)
        assert isinstance(value, float | int), name
        return value

    def string(self, name: str) -> str:
        """The value of a string setting, empty when there is none."""
        value = self.value(name)
        assert value is None or isinstance(value, str), name
        return value or ""

    def items(self, name: str) -> tuple[str, ...]:
        """The value of a list setting, empty when there is none."""
        value = self.value(name)
        assert value is None or isinstance(value, tuple), name
        return value or ()

    def is_set(self, name: str) -> bool:
        """Whether somebody gave this setting, whatever the default is."""
        return name in self.static or name in self.cluster_default or name in self.this_broker

    def of_listener(self, listener: str, name: str, mechanism: str = "") -> str:
        """The full name of the setting that counts for a listener, and a SASL mechanism there: with its
        prefix where somebody gave it so."""
        prefix = f"listener.name.{listener.lower()}."
        for full in (f"{prefix}{mechanism.lower()}.{name}" if mechanism else "", f"{prefix}{name}"):
            if full and self.is_set(full):
                return full
        return name

    @property
    def node_id(self) -> int:
        return self.integer("node.id")

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The data folders, each once."""
        return tuple(dict.fromkeys(self.items("log.dirs") or self.items("log.dir")))

    def warnings(self) -> list[str]:
        """What a starting broker should say about its static settings: names it ignores, and why."""
        lines = []
        for name in sorted(self.static):
            setting = base_config_key(name)
            if setting is None:
                why = kafka_only(name) or f"no such setting{did_you_mean(name, BROKER)}"
                lines.append(f"setting {name} is ignored: {why}")
            elif setting.no_effect:
                lines.append(f"setting {name} has no effect: {setting.no_effect}")
        return lines

    # Topics

    @property
    def default_log_config(self) -> LogConfig:
        if self._default_log_config is None:
            self._default_log_config = self._log_config({})
        return self._default_log_config

    def topic(self, overrides: Mapping[str, str]) -> LogConfig:
        """The settings of a topic's logs. Raises InvalidSetting for an override that cannot be.

        Rules between settings are not checked here: a log must open whatever the defaults have become.
        """
        return self._log_config(overrides) if overrides else self.default_log_config

    def validate_topic(self, overrides: Mapping[str, str]) -> None:
        """Raise InvalidSetting unless a topic may have all these overrides together."""
        check_topic_values(self.topic_values(overrides))

    def topic_values(self, overrides: Mapping[str, str]) -> dict[str, Value]:
        """Every topic setting with its typed value."""
        values = {name: self._topic_default(setting) for name, setting in TOPIC.items()}
        for name, text in overrides.items():
            values[name] = topic_value(name, text)
        return values

    def _topic_default(self, setting: ConfigKey) -> Value:
        for synonym in setting.synonyms:
            value = self.value(synonym.name)
            if value is not None:
                if setting.name == "retention.ms":
                    assert isinstance(value, int)
                    return value * synonym.factor if value >= 0 else -1
                if synonym.factor != 1:
                    assert isinstance(value, int)
                    return value * synonym.factor
                return value
        return setting.default_value()

    def _log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        values = self.topic_values(overrides)
        fields = {field: values[name] for name, field in _LOG_FIELDS.items()}
        policies = values["cleanup.policy"]
        assert isinstance(policies, tuple)
        small = values["internal.segment.bytes"]
        if small is not None:
            fields["segment_bytes"] = small
        return LogConfig(**{**fields, "cleanup_policy": frozenset(policies)})  # type: ignore[arg-type]

    # Descriptions

    def describe_topic(
        self, overrides: Mapping[str, str], names: Collection[str] | None = None
    ) -> list[ConfigEntry]:
        """Every setting of a topic, or those named, by name."""
        values = self.topic_values(overrides)
        entries = []
        for name in sorted(TOPIC):
            setting = TOPIC[name]
            if (names is not None and name not in names) or (setting.hidden and name not in overrides):
                continue
            text = to_text(_without_doubles(values[name]))
            synonyms: tuple[ConfigSynonym, ...] = ()
            if setting.synonyms:
                synonyms = self.synonyms_of(setting.synonyms[0].name, setting.sensitive)
            if name in overrides:
                synonyms = (ConfigSynonym(name, text, ConfigSource.TOPIC), *synonyms)
            source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
            entries.append(
                ConfigEntry(name, text, source, False, setting.sensitive, setting.type, setting.doc, synonyms)
            )
        return entries

    def describe_broker(self, names: Collection[str] | None = None) -> list[ConfigEntry]:
        """Every setting of this broker, or those named, by name. An unknown one is described by its name
        alone."""
        shown = {name for name, setting in BROKER.items() if not setting.hidden}
        shown.update(self.static, self.cluster_default, self.this_broker)
        return [self._describe(name) for name in sorted(shown) if names is None or name in names]

    def describe_broker_default(self, names: Collection[str] | None = None) -> list[ConfigEntry]:
        """The dynamic defaults of all brokers: only what is set there."""
        entries = []
        for name, given in sorted(self.cluster_default.items()):
            if names is not None and name not in names:
                continue
            setting = base_config_key(name)
            sensitive = setting is None or setting.sensitive
            text = None if sensitive else given
            source = ConfigSource.DYNAMIC_DEFAULT_BROKER
            entry = self._describe(name)
            entries.append(
                entry._replace(value=text, source=source, synonyms=(ConfigSynonym(name, text, source),))
            )
        return entries

    def _describe(self, name: str) -> ConfigEntry:
        setting = base_config_key(name)
        sensitive = setting is None or setting.sensitive
        synonyms = self.synonyms_of(name, sensitive)
        return ConfigEntry(
            name,
            None if sensitive else to_text(_without_doubles(self.value(name))),
            synonyms[0].source if synonyms else ConfigSource.DEFAULT,
            setting is None or setting.mode is Mode.READ_ONLY or has_listener_prefix(name),
            sensitive,
            Type.UNKNOWN if setting is None else setting.type,
            "" if setting is None else setting.doc,
            synonyms,
        )

    def synonyms_of(self, name: str, sensitive: bool = False) -> tuple[ConfigSynonym, ...]:
        """Every value given for a broker setting or a synonym of it, by precedence.

        Begins with the setting itself, as in Kafka: a default in hours is not listed for a setting in
        milliseconds that is not set.
        """
        names = _SYNONYMS.get(name, (name,))
        if has_listener_prefix(name):
            base = base_config_key(name)
            names = (name, base.name) if base is not None else (name,)
        synonyms: list[ConfigSynonym] = []
        for given, source in self._levels(names):
            for each in names:
                if each in given:
                    text = None if sensitive else given[each]
                    if synonyms or each == name:
                        synonyms.append(ConfigSynonym(each, text, source))
        return tuple(synonyms)

    def _levels(self, names: Iterable[str]) -> Iterable[tuple[Mapping[str, str], ConfigSource]]:
        yield self.this_broker, ConfigSource.DYNAMIC_BROKER
        yield self.cluster_default, ConfigSource.DYNAMIC_DEFAULT_BROKER
        yield self.static, ConfigSource.STATIC_BROKER
        defaults = {}
        for name in names:
            setting = BROKER.get(name)
            if setting is not None and setting.default is not None:
                defaults[name] = setting.default
        yield defaults, ConfigSource.DEFAULT


def _without_doubles(value: Value) -> Value:
    return tuple(dict.fromkeys(value)) if isinstance(value, tuple) else value


def _usable(given: Mapping[str, str], per_broker: bool, problems: list[InvalidSetting]) -> dict[str, str]:
    usable = {}
    for name, text in given.items():
        try:
            validate_broker_config(name, text, per_broker)
        except InvalidSetting as error:
            problems.append(error)
        else:
            usable[name] = text
    return usable


def check_together(settings: BrokerSettings) -> None:
    """Rules between broker settings. Raises InvalidSetting for the first that is broken."""
    number = settings.integer
    roles = settings.items("process.roles")
    if roles and "broker" not in roles:
        raise InvalidSetting("process.roles", ",".join(roles), "A controller without a broker cannot be run")
    if settings.is_set("inter.broker.listener.name") and settings.is_set("security.inter.broker.protocol"):
        name = "inter.broker.listener.name"
        raise InvalidSetting(
            name, settings.text(name), "Set this or security.inter.broker.protocol, not both"
        )
    if number("max.connections.per.ip") == 0 and not settings.string("max.connections.per.ip.overrides"):
        reason = "0 needs exceptions in max.connections.per.ip.overrides"
        raise InvalidSetting("max.connections.per.ip", "0", reason)
    if number("queued.max.request.bytes") > 0:
        _in_order(settings, "socket.request.max.bytes", "queued.max.request.bytes")
    if number("log.cleaner.threads") == 0:
        raise InvalidSetting("log.cleaner.threads", "0", "Value must be at least 1")
    if number("log.cleaner.dedupe.buffer.size") // number("log.cleaner.threads") <= 1 << 20:
        size = str(number("log.cleaner.dedupe.buffer.size"))
        raise InvalidSetting(
            "log.cleaner.dedupe.buffer.size", size, "Each cleaner thread needs more than 1 MB"
        )
    _in_order(settings, "replica.fetch.wait.max.ms", "replica.socket.timeout.ms")
    _in_order(settings, "replica.fetch.wait.max.ms", "replica.lag.time.max.ms")
    _in_order(settings, "group.min.session.timeout.ms", "group.max.session.timeout.ms")
    for what in ("assignment.interval", "heartbeat.interval", "session.timeout"):
        minimum, default, maximum = (f"group.consumer.{prefix}{what}.ms" for prefix in ("min.", "", "max."))
        _in_order(settings, minimum, default)
        _in_order(settings, default, maximum)
    _in_order(settings, "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms")


def _in_order(settings: BrokerSettings, smaller: str, larger: str) -> None:
    low, high = settings.integer(smaller), settings.integer(larger)
    if low > high:
        raise InvalidSetting(larger, str(high), f"Value must be at least that of {smaller}, which is {low}")
