"""What the three converters with a Schema Registry share: settings, subjects, ids, and one cache per schema.

A converter compiles each schema once into a function over values. Writing: the Connect schema gives a schema
of the registry's language, which is registered (or looked up) under the subject of the topic. Reading: the id
in front of the bytes names the schema; its version in the subject becomes the version of Connect's schema, as
with Confluent's converters.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from millstream.connect.config.config_def import REQUIRED, ConfigDef, ConfigError, ConfigKey, ValidString
from millstream.connect.converters.base import Converter
from millstream.connect.data.record import SchemaAndValue
from millstream.connect.data.schema import Schema
from millstream.connect.errors import ConnectError, DataError, RetriableError
from millstream.schemas import parse
from millstream.serdes.client import RegisteredSchema, RegistryRefused, RegistryUnreachable, SchemaRegistry
from millstream.serdes.frame import NotFramed, split, with_id
from millstream.serdes.names import STRATEGIES, SubjectName
from millstream.settings.config_key import Importance
from millstream.settings.values import Password
from millstream.settings.values import Type as SettingType

_STRATEGY = "io.confluent.kafka.serializers.subject.TopicNameStrategy"


def flag(name: str, default: bool, doc: str, importance: Importance = Importance.LOW) -> ConfigKey:
    return ConfigKey(name, SettingType.BOOLEAN, default, importance, doc)


def _check_strategy(name: str, value: Any) -> None:
    if str(value).rpartition(".")[2] not in STRATEGIES:
        raise ConfigError.of(name, value, f"Class {value} could not be found.")


COMMON = ConfigDef(
    [
        ConfigKey(
            "schema.registry.url",
            SettingType.LIST,
            REQUIRED,
            Importance.HIGH,
            "Addresses of the Schema Registry.",
        ),
        flag("auto.register.schemas", True, "Whether new schemas are registered.", Importance.MEDIUM),
        flag(
            "use.latest.version", False, "Whether values are written with the newest schema of the subject."
        ),
        flag(
            "latest.compatibility.strict",
            True,
            "Whether the newest schema has to be able to read what the connector's own schema describes.",
        ),
        flag("normalize.schemas", False, "Whether schemas are registered in their normal form."),
        ConfigKey(
            "use.schema.id", SettingType.INT, -1, Importance.LOW, "The id of the schema to write with."
        ),
        *(
            ConfigKey(
                f"{what}.subject.name.strategy",
                SettingType.STRING,
                _STRATEGY,
                Importance.MEDIUM,
                f"Under which subject the schemas of {what}s are registered.",
                _check_strategy,
            )
            for what in ("key", "value")
        ),
        ConfigKey(
            "basic.auth.credentials.source",
            SettingType.STRING,
            "URL",
            Importance.MEDIUM,
            "Where user and password are: in the URL, or in basic.auth.user.info.",
            ValidString(("URL", "USER_INFO")),
        ),
        *(
            ConfigKey(
                name,
                SettingType.PASSWORD,
                Password(""),
                Importance.MEDIUM,
                "User and password, as user:password.",
            )
            for name in ("basic.auth.user.info", "schema.registry.basic.auth.user.info")
        ),
        ConfigKey(
            "schema.registry.ssl.truststore.location",
            SettingType.STRING,
            None,
            Importance.LOW,
            "Certificates to trust, in PEM.",
        ),
        ConfigKey(
            "schemas.cache.config", SettingType.INT, 1000, Importance.LOW, "How many schemas are remembered."
        ),
        flag(
            "ignore.default.for.nullables",
            False,
            "Whether a null stays null although the field has a default.",
        ),
    ]
)


class Written(NamedTuple):
    """How values of one Connect schema are written."""

    schema_id: int
    encode: Callable[[Any], bytes]


class Read(NamedTuple):
    """How bytes of one registered schema are read. `select` finds schema and function where a registered
    schema describes several messages."""

    select: Callable[[memoryview], tuple[Schema | None, Callable[[memoryview], Any]]]


class RegistryConverter(Converter):
    """`language` is the registry's name of the schema language; errors begin as Confluent's do."""

    language: str
    write_error: str
    read_error: str

    def __init__(self, settings: Mapping[str, Any], *, is_key: bool = False) -> None:
        super().__init__(settings, is_key=is_key)
        self._limit = max(1, int(self.settings["schemas.cache.config"]))
        self._with_default = not self.settings["ignore.default.for.nullables"]
        self._registry = self._client()
        strategy = self.settings["key.subject.name.strategy" if is_key else "value.subject.name.strategy"]
        self._subject: SubjectName = STRATEGIES[strategy.rpartition(".")[2]]
        self._writers: dict[tuple[str, Schema | None], Written] = {}
        self._readers: dict[tuple[str, int | str], Read] = {}

    def _client(self) -> SchemaRegistry:
        user: str | None = None
        password = ""
        if self.settings["basic.auth.credentials.source"] == "USER_INFO":
            given = (
                self.settings["basic.auth.user.info"],
                self.settings["schema.registry.basic.auth.user.info"],
            )
            info = next((one.value for one in given if one.value), "")
            user, _, password = info.partition(":")
        try:
            return SchemaRegistry(
                list(self.settings["schema.registry.url"]),
                user=user,
                password=password,
                ca_file=self.settings["schema.registry.ssl.truststore.location"],
            )
        except (ValueError, OSError) as error:
            raise ConfigError(f"Invalid value for configuration schema.registry.url: {error}") from None

    # --- what each language does ----------------------------------------------------------------------------

    @abstractmethod
    def _schema_text(self, schema: Schema | None) -> tuple[str, str | None]:
        """The text of a Connect schema in the language, and the name of its record."""

    @abstractmethod
    def _encoder(self, schema: Schema | None, target: RegisteredSchema) -> Callable[[Any], bytes]: ...

    @abstractmethod
    def _decoder(self, registered: RegisteredSchema, version: int | None) -> Read: ...

    # --- from Connect ---------------------------------------------------------------------------------------

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None and (schema is None or schema.optional):
            return None
        written = self._writers.get((topic, schema))
        try:
            if written is None:
                written = self._writer(topic, schema)
            return with_id(written.schema_id, written.encode(value))
        except ConnectError:
            raise
        except RegistryUnreachable as error:
            raise RetriableError(f"{self.write_error.format(topic)} {error}") from error
        except Exception as error:  # fastavro, protobuf and the registry have no common ground
            raise DataError(f"{self.write_error.format(topic)} {error}") from error

    def _writer(self, topic: str, schema: Schema | None) -> Written:
        text, name = self._schema_text(schema)
        subject = self._subject(topic, name, self.is_key)
        # As in Confluent's serializers, registering goes before the two settings that choose a schema.
        registers = self.settings["auto.register.schemas"]
        if not registers and self.settings["use.schema.id"] >= 0:
            target = self._registry.schema(self.settings["use.schema.id"])
            schema_id = target.id
        elif not registers and self.settings["use.latest.version"]:
            target = self._registry.latest(subject)
            schema_id = target.id
            self._check_latest(target, text)
        else:
            target = RegisteredSchema(-1, self.language, text)
            find = self._registry.register if registers else self._registry.look_up
            schema_id = find(subject, text, self.language, normalize=self.settings["normalize.schemas"])
        if len(self._writers) >= self._limit:
            self._writers.clear()
        written = self._writers[topic, schema] = Written(schema_id, self._encoder(schema, target))
        return written

    def _check_latest(self, latest: RegisteredSchema, text: str) -> None:
        if not self.settings["latest.compatibility.strict"]:
            return
        problems = latest.parsed.problems_reading(parse(self.language, text, (), {}))
        if problems:
            raise DataError(
                "Incompatible schema: the newest one of the subject cannot take what the connector writes: "
                f"{problems[0]}. Set latest.compatibility.strict=false to disable this check"
            )

    # --- to Connect -----------------------------------------------------------------------------------------

    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:
        if data is None:
            return SchemaAndValue(None, None)
        try:
            schema_id, body = split(data)
            found = self._readers.get((topic, schema_id)) or self._reader(topic, schema_id)
            schema, decode = found.select(body)
            return SchemaAndValue(schema, decode(body))
        except ConnectError:
            raise
        except NotFramed as error:
            raise DataError(f"{self.read_error.format(topic)} Unknown magic byte! ({error})") from error
        except RegistryUnreachable as error:
            raise RetriableError(f"{self.read_error.format(topic)} {error}") from error
        except Exception as error:  # as above
            raise DataError(f"{self.read_error.format(topic)} {error}") from error

    def _reader(self, topic: str, schema_id: int | str) -> Read:
        if isinstance(schema_id, int):
            registered = self._registry.schema(schema_id)
        else:
            registered = self._registry.schema_by_guid(schema_id)
        if registered.type != self.language:
            wrong = f"schema {schema_id} is {registered.type}, not {self.language}"
            raise DataError(f"{self.read_error.format(topic)} {wrong}")
        version = None
        if isinstance(schema_id, int):
            try:
                subject = self._subject(topic, registered.parsed.name, self.is_key)
                version = self._registry.version_of(schema_id, subject)
            except (RegistryRefused, ValueError):
                version = None
        if len(self._readers) >= self._limit:
            self._readers.clear()
        found = self._readers[topic, schema_id] = self._decoder(registered, version)
        return found
