"""How the runner itself reaches the brokers, as options for a pipeline's readers and writers.

`--command-config` and profiles make a ClientConfig. Its TLS, SASL and patience are said again here in the
names of format("millstream"), so that a pipeline needs nothing but `settings.kafka` to use the same brokers
in the same way.
"""

from dataclasses import fields
from pathlib import Path

from millstream.client import ClientConfig
from millstream.client.security import Sasl, Tls

FILES = {
    "ca_file": "ssl.ca.location",
    "certificate_file": "ssl.certificate.location",
    "key_file": "ssl.key.location",
}
TEXTS = {
    "ca_text": "ssl.ca.pem",
    "certificate_text": "ssl.certificate.pem",
    "key_text": "ssl.key.pem",
    "key_password": "ssl.key.password",
}
TIMES = {
    "connect_timeout": "socket.connection.setup.timeout.ms",
    "request_timeout": "request.timeout.ms",
    "total_timeout": "default.api.timeout.ms",
    "retry_backoff": "retry.backoff.ms",
    "retry_backoff_max": "retry.backoff.max.ms",
}


def options_of(client: ClientConfig) -> dict[str, str]:
    """`kafka.<name>` options that make the same client, but for its name and addresses."""
    found = {"security.protocol": client.security_protocol} if client.security_protocol != "PLAINTEXT" else {}
    found |= _tls(client.tls) if client.tls is not None else {}
    found |= _sasl(client.sasl) if client.sasl is not None else {}
    for one in fields(ClientConfig):
        seconds = getattr(client, one.name)
        if one.name in TIMES and seconds != one.default:
            found[TIMES[one.name]] = str(round(seconds * 1000))
    return {f"kafka.{name}": value for name, value in found.items()}


def _tls(tls: Tls) -> dict[str, str]:
    found = {name: getattr(tls, field) for field, name in TEXTS.items() if getattr(tls, field)}
    for field, name in FILES.items():
        if getattr(tls, field):  # tasks run in a folder of their own
            found[name] = str(Path(getattr(tls, field)).absolute())
    if not tls.check_host:
        found["ssl.endpoint.identification.algorithm"] = "none"
    return found


def _sasl(sasl: Sasl) -> dict[str, str]:
    return {
        "sasl.mechanism": sasl.mechanism,
        "sasl.username": sasl.username,
        "sasl.password": sasl.password,
    }
