"""The cluster that a command works with: the one it names, or that of the profile; and names within it."""

import base64
import re
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millstream.cli.errors import CommandFailed, UsageError

if TYPE_CHECKING:
    from millstream.client import Cluster

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def read_properties(path: str) -> dict[str, str]:
    """A properties file, or nothing if no path is given."""
    if not path:
        return {}
    from millstream.settings.properties import read_properties as read

    try:
        return read(path)
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        raise CommandFailed(f"{path}: {error}") from None


def key_values(items: Sequence[str]) -> dict[str, str]:
    """`name=value` arguments. A value may contain more of `=`; a missing one is empty."""
    return {name: value for name, _, value in (item.partition("=") for item in items)}


def client_properties(items: Sequence[str]) -> dict[str, str]:
    """Properties of a client from the command line. A name that no Kafka client has is refused: Kafka's tools
    drop it with a line in their log, and what was meant does not happen."""
    found = key_values(items)
    for name in found:
        if not _is_client_property(name):
            raise UsageError(f"'{name}' is not a property of a Kafka client{_suggestion(name)}")
    return found


def read_client_properties(path: str) -> dict[str, str]:
    """Properties of a client from a file. It may be meant for other programs as well, so only a name that
    looks misspelt is mentioned."""
    found = read_properties(path)
    for name in found:
        suggestion = "" if _is_client_property(name) else _suggestion(name)
        if suggestion:
            print(f"{path}: '{name}' is not a property of a Kafka client{suggestion}", file=sys.stderr)
    return found


def _is_client_property(name: str) -> bool:
    from millstream.cli.profile_store import SERVICE_URLS
    from millstream.client.client_properties import CLIENT_PROPERTIES

    return name in CLIENT_PROPERTIES or name in SERVICE_URLS or name.startswith("schema.registry.")


def _suggestion(name: str) -> str:
    from millstream.client.client_properties import CLIENT_PROPERTIES
    from millstream.settings.suggestions import did_you_mean

    return did_you_mean(name, CLIENT_PROPERTIES)


@contextmanager
def connect(servers: str, properties: Mapping[str, str], client_id: str) -> "Iterator[Cluster]":
    """A cluster to work with, closed at the end: the one that the command names, or that of the profile."""
    from millstream.cli.profile_store import with_profile
    from millstream.client import ClientConfig, Cluster

    properties = with_profile(servers, properties)
    if not servers and "bootstrap.servers" not in properties:
        raise UsageError(
            "--bootstrap-server must be specified, for example --bootstrap-server 127.0.0.1:9092, or a "
            "profile: "
            "`millstream -p up ...` is the cluster of `millstream up`"
        )
    try:
        config = ClientConfig.of(servers, properties, client_id)
    except ValueError as error:
        raise UsageError(str(error)) from None
    with Cluster(config) as cluster:
        yield cluster


def topic_matcher(pattern: str) -> re.Pattern[str]:
    """Topics by regular expression, as Kafka's tools read one: it has to match the whole name, and a comma
    means or."""
    try:
        return re.compile(pattern.strip().replace(",", "|").replace(" ", "").strip("\"'"))
    except re.error as error:
        raise UsageError(f"'{pattern}' is not a valid regular expression: {error}") from None


def kafka_id(value: uuid.UUID) -> str:
    """A topic id as Kafka prints it: base64 for addresses, without padding."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
