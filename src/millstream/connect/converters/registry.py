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

from millstream.client.security import read_security
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
from millstream.settings.redaction import hide_url_passwords
from millstream.settings.values import Password
from millstream.settings.values import Type as SettingType

_TLS = "schema.registry.ssl."
_STRATEGY = "io.confluent.kafka.serializers.subject.TopicNameStrategy"


def flag(name: str, default: bool, doc: str, importance: Importance = Importance.LOW) -> ConfigKey:
    return ConfigKey(name, SettingType.BOOLEAN, default, importance, doc)


def _check_strategy(name: str, value: Any) -> None:
    if str(value).rpartition(".")[2] not in STRATEGIES:
        raise ConfigError.of(name, value, f"Class {value} could not be found.")


def _check_bearer(name: str, value: Any) -> None:
    if value not in (None, "STATIC_TOKEN"):
        raise ConfigError.of(name, value, "Only STATIC_TOKEN is supported: give a token in bearer.auth.token")


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
            "Where user and password are: in the URL, in basic.auth.user.info, or in sasl.jaas.config.",
            ValidString(("URL", "USER_INFO", "SASL_INHERIT")),
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
            "sasl.jaas.config",
            SettingType.PASSWORD,
            Password(""),
            Importance.LOW,
            "A login whose user and password the registry gets, with SASL_INHERIT.",
        ),
        ConfigKey(
            "bearer.auth.credentials.source",
            SettingType.STRING,
            None,
            Importance.MEDIUM,
            "STATIC_TOKEN: the registry gets the token of bearer.auth.token.",
            _check_bearer,
        ),
        ConfigKey(
            "bearer.auth.token", SettingType.PASSWORD, Password(""), Importance.MEDIUM, "A bearer token."
        ),
        *(
            ConfigKey(
                f"{_TLS}{name}",
                SettingType.PASSWORD if secret else SettingType.STRING,
                Password("") if secret else default,
                Importance.LOW,
                doc,
            )
            for name, secret, default, doc in (
                ("truststore.location", False, None, "Certificates to trust, in PEM."),
                ("truststore.type", False, "PEM", "PEM, the only type that is read."),
                ("truststore.certificates", True, None, "The same as text."),
                ("keystore.location", False, None, "Our key and certificate, in PEM."),
                ("keystore.type", False, "PEM", "PEM, the only type that is read."),
                ("keystore.certificate.chain", True, None, "Our certificate as text."),
                ("keystore.key", True, None, "Our key as text."),
                ("key.password", True, None, "The password of the key."),
                (
                    "endpoint.identification.algorithm",
                    False,
                    "https",
                    "https, or nothing: whether the name of the registry has to be in its certificate.",
                ),
            )
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


def _text(value: Any) -> str:
    return str(value.value if isinstance(value, Password) else value or "")


class ValueWriter(NamedTuple):
    """How values of one Connect schema are written."""

    schema_id: int
    encode: Callable[[Any], bytes]


class ValueReader(NamedTuple):
    """How bytes of one registered schema are read. `select` finds schema and function where a registered
    schema describes several messages."""

    select: Callable[[memoryview], tuple[Schema | None, Callable[[memoryview], Any]]]


def with_worker_registry(own: Mapping[str, Any], worker: Mapping[str, str]) -> Mapping[str, Any]:
    """The settings of a converter, completed by those of the worker's registry (`schema.registry.*`): its
    address where the converter names none, and its login where that is the same address."""
    url = worker.get("schema.registry.url", "")
    if not url or own.get("schema.registry.url", url) != url:
        return own
    found = {"schema.registry.url": url, **own}
    if any(name.startswith(("basic.auth.", "bearer.auth.", "schema.registry.basic.")) for name in own):
        return found
    if worker.get("schema.registry.basic.auth.user.info"):
        found["basic.auth.credentials.source"] = "USER_INFO"
    return {**worker, **found}


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
        self._writers: dict[tuple[str, Schema | None], ValueWriter] = {}
        self._readers: dict[tuple[str, int | str], ValueReader] = {}

    def _client(self) -> SchemaRegistry:
        user, password = self._login()
        token = ""
        if self.settings["bearer.auth.credentials.source"] is not None:
            token = self.settings["bearer.auth.token"].value
            if not token:
                raise ConfigError(f"{self._where} needs bearer.auth.token")
        secured = {
            name.removeprefix("schema.registry."): _text(value)
            for name, value in self.settings.items()
            if name.startswith(_TLS)
        }
        try:
            _, tls, _ = read_security({"security.protocol": "SSL", **secured})
            return SchemaRegistry(
                list(self.settings["schema.registry.url"]), user=user, password=password, token=token, tls=tls
            )
        except (ValueError, OSError) as error:
            raise ConfigError(f"{self._where} cannot be used: {error}") from None

    @property
    def _where(self) -> str:
        urls = ",".join(map(hide_url_passwords, self.settings["schema.registry.url"]))
        return f"schema.registry.url {urls}"

    def _login(self) -> tuple[str | None, str]:
        """User and password, where they are not in the URL."""
        source = self.settings["basic.auth.credentials.source"]
        if source == "USER_INFO":
            given = ("basic.auth.user.info", "schema.registry.basic.auth.user.info")
            info = next((self.settings[name].value for name in given if self.settings[name].value), "")
            if not info:
                raise ConfigError("basic.auth.credentials.source=USER_INFO needs basic.auth.user.info")
            user, _, password = info.partition(":")
            return user, password
        if source == "SASL_INHERIT":
            jaas = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": self.settings["sasl.jaas.config"].value}
            try:
                _, _, login = read_security({"security.protocol": "SASL_PLAINTEXT", **jaas})
            except ValueError as error:
                raise ConfigError(f"basic.auth.credentials.source=SASL_INHERIT: {error}") from None
            return (None, "") if login is None else (login.username, login.password)
        return None, ""

    # --- what each language does ----------------------------------------------------------------------------

    @abstractmethod
    def _schema_text(self, schema: Schema | None) -> tuple[str, str | None]:
        """The text of a Connect schema in the language, and the name of its record."""

    @abstractmethod
    def _encoder(self, schema: Schema | None, target: RegisteredSchema) -> Callable[[Any], bytes]: ...

    @abstractmethod
    def _decoder(self, registered: RegisteredSchema, version: int | None) -> ValueReader: ...

    # --- from Connect ---------------------------------------------------------------------------------------

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None and (schema is None or schema.optional):
            return None
        writer = self._writers.get((topic, schema))
        try:
            if writer is None:
                writer = self._writer(topic, schema)
            return with_id(writer.schema_id, writer.encode(value))
        except ConnectError:
            raise
        except RegistryUnreachable as error:
            raise RetriableError(f"{self.write_error.format(topic)} {error}") from error
        except Exception as error:  # fastavro, protobuf and the registry have no common ground
            raise DataError(f"{self.write_error.format(topic)} {error}") from error

    def _writer(self, topic: str, schema: Schema | None) -> ValueWriter:
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
        writer = self._writers[topic, schema] = ValueWriter(schema_id, self._encoder(schema, target))
        return writer

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

    def _reader(self, topic: str, schema_id: int | str) -> ValueReader:
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
