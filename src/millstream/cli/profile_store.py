"""Named clusters: where they are kept, and which one counts now.

A file of the user (`profiles.yaml` in ~/.config/millstream; MILLSTREAM_CONFIG names another folder) maps
names to the properties of a Kafka client, `bootstrap.servers` and `schema.registry.url` among them. It may
hold passwords, so only its owner can read it. `-p NAME` or MILLSTREAM_PROFILE chooses one for a command,
`millstream profile use` for all commands that name no cluster. The name `up` is taken: it stands for what
`millstream up` runs.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.cli.errors import CommandFailed, UsageError

if TYPE_CHECKING:
    from ssl import SSLContext

CHOSEN = "MILLSTREAM_PROFILE"
LOCAL = "up"
SERVERS = "bootstrap.servers"
REGISTRY = "schema.registry.url"
REGISTRY_LOGIN = "schema.registry.basic.auth.user.info"
REGISTRY_AUTHORITY = "schema.registry.ssl.truststore.location"
SERVICE_URLS = ("connect.url", "sql.url")

# What a profile calls a setting, and what the service does.
SERVICE_SETTINGS = {
    "registry": {SERVERS: "kafkastore.bootstrap.servers"},
    "rest": {name: name for name in (SERVERS, REGISTRY, REGISTRY_LOGIN, REGISTRY_AUTHORITY)},
    "console": {name: name for name in (SERVERS, REGISTRY, REGISTRY_AUTHORITY)},
}
CLIENT_PREFIXES = {"registry": "kafkastore.", "rest": "client.", "console": "client."}
SECURITY = ("security.protocol", "ssl.", "sasl.")

Properties = dict[str, str]

_for_this_command = ""


def choose(name: str) -> None:
    """What `-p NAME` says; empty if it was not there."""
    global _for_this_command
    _for_this_command = name


def folder() -> Path:
    own = os.environ.get("MILLSTREAM_CONFIG")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "millstream"


def path() -> Path:
    return folder() / "profiles.yaml"


class Profiles:
    """The file, read and written as a whole."""

    def __init__(self, clusters: dict[str, Properties], current: str) -> None:
        self.clusters = clusters
        self.current = current

    @classmethod
    def read(cls) -> "Profiles":
        file = path()
        if not file.exists():
            return cls({}, "")
        import yaml

        try:
            content = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        except OSError as error:
            raise CommandFailed(f"cannot read {file}: {(error.strerror or str(error)).lower()}") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise CommandFailed(
                f"{file} is damaged: {str(error).splitlines()[0]}; mend or remove it"
            ) from None
        try:
            clusters = {
                str(name): {str(key): text_of(value) for key, value in settings.items()}
                for name, settings in (content.get("profiles") or {}).items()
            }
            return cls(clusters, str(content.get("current") or ""))
        except AttributeError:
            raise CommandFailed(f"{file} is not a file of profiles; mend or remove it") from None

    def write(self) -> None:
        import yaml

        content: dict[str, Any] = {"current": self.current or None, "profiles": self.clusters}
        folder().mkdir(parents=True, exist_ok=True)
        new = path().with_suffix(".new")
        new.touch(mode=stat.S_IRUSR | stat.S_IWUSR)
        new.chmod(stat.S_IRUSR | stat.S_IWUSR)
        new.write_text(yaml.safe_dump(content, sort_keys=True, allow_unicode=True), encoding="utf-8")
        new.replace(path())

    def get(self, name: str) -> Properties:
        if name == LOCAL:
            return local_cluster()
        if name not in self.clusters:
            known = ", ".join(sorted(self.clusters)) or "none yet (millstream profile add NAME ...)"
            raise UsageError(f"there is no profile '{name}'; there are: {known}")
        return self.clusters[name]


def text_of(value: Any) -> str:
    """YAML reads true and 12 as what they are; properties are text."""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def local_cluster() -> Properties:
    """What `millstream up` runs just now."""
    from millstream.up.data_folders import NotRunning, SeveralRunning, find

    try:
        found = find("").instance()
    except NotRunning as nothing:
        raise CommandFailed(f"{nothing}; `millstream up` starts it") from None
    except SeveralRunning as several:
        raise CommandFailed(
            f"`up` runs more than once; name one by MILLSTREAM_DATA_DIR=FOLDER in the environment:\n{several}"
        ) from None
    addresses = {service.name: service.address for service in found.services}
    if "broker" not in addresses:
        raise CommandFailed(f"`millstream up` in {found.data_dir} runs no broker")
    properties = {
        SERVERS: ",".join(
            address for name, address in addresses.items() if name == "broker" or name.startswith("broker-")
        )
    }
    if any(service.name == "broker" and "SASL_SSL" in service.what for service in found.services):
        from millstream.cli.secure_platform import admin_properties

        properties = {**admin_properties(Path(found.data_dir)), **properties}
    for service, name in (("registry", REGISTRY), *((url.partition(".")[0], url) for url in SERVICE_URLS)):
        if service in addresses:
            properties[name] = addresses[service]
    return properties


def chosen(servers_given: bool = False) -> Properties:
    """The settings that count under those of the command itself.

    A profile that was chosen for this command always counts. The one that is in use for all commands does not
    where the command names a cluster of its own: passwords are for the cluster they belong to.
    """
    name = _for_this_command or os.environ.get(CHOSEN, "")
    if name:
        return dict(Profiles.read().get(name))
    if servers_given:
        return {}
    profiles = Profiles.read()
    if not profiles.current:
        return {}
    return dict(profiles.get(profiles.current))


def with_profile(servers: str, properties: Mapping[str, str]) -> Properties:
    """The command's own properties over those of the profile."""
    return {**chosen(bool(servers) or SERVERS in properties), **properties}


def registry_settings(servers: str) -> Properties:
    """What the profile says about the Schema Registry of its cluster."""
    return {
        name: value for name, value in chosen(bool(servers)).items() if name.startswith("schema.registry.")
    }


class HttpAccess(NamedTuple):
    """How to reach an HTTP service. Its users are those of the cluster, so the login is the client's."""

    url: str
    user: str = ""
    password: str = ""
    authority: str = ""  # the file with the certificate to trust; empty: the system's

    def context(self) -> "SSLContext | None":
        """For https. CommandFailed if the file cannot be used."""
        if not self.url.startswith("https://"):
            return None
        from ssl import create_default_context

        try:
            return create_default_context(cafile=self.authority or None)
        except OSError as error:
            raise CommandFailed(f"{self.authority} cannot be used: {error}") from None


def http_access(service: str, url: str, default: str) -> HttpAccess:
    """The service of the profile (`connect.url`, `sql.url`), or the one that the command names. It is shown
    the profile's password only if the profile names it, or was chosen for this command."""
    from millstream.client.security import read_security

    properties = chosen(bool(url))
    found = url or properties.get(f"{service}.url", "")
    if not found:
        return HttpAccess(default)
    try:
        _, tls, sasl = read_security(properties)
    except ValueError:
        return HttpAccess(found)  # a login that has no password, as Kerberos
    authority = tls.ca_file if tls is not None else properties.get(REGISTRY_AUTHORITY, "")
    if sasl is None:
        return HttpAccess(found, authority=authority)
    return HttpAccess(found, sasl.username, sasl.password, authority)


def service_arguments(service: str, given: list[str]) -> list[str]:
    """What `-p NAME` means to a service that is started by hand: the cluster it works with. Returns all its
    words."""
    if not _for_this_command or given[:1] == ["hash-password"]:
        return given
    if service not in SERVICE_SETTINGS:
        raise UsageError(f"-p names a cluster to work with; it means nothing to `millstream {service}`")
    known = chosen()
    if given[:1] == ["codegen"]:
        return ["codegen", *(["--registry", known[REGISTRY]] if REGISTRY in known else []), *given[1:]]
    words = []
    for name, value in known.items():
        setting = SERVICE_SETTINGS[service].get(name, "")
        if name.startswith(SECURITY):
            setting = CLIENT_PREFIXES[service] + name
        if setting:
            words += ["--set", f"{setting}={value}"]
    return [*words, *given]
