"""Whether a service has a setting, so that `up --set` can refuse a misspelt one before anything starts.

A service that is started alone takes any name, since a file of settings may be Kafka's or Confluent's; its
log names those that have no effect.
"""

import importlib
from typing import TYPE_CHECKING

from millstream.settings.suggestions import did_you_mean
from millstream.up.services import Service
from millstream.up.several_brokers import is_broker

if TYPE_CHECKING:
    from millstream.http.service_config import ServiceConfig

EVIDENT = 0.9


def setting_problem(service: Service, name: str) -> str:
    """What is wrong with the name; empty if nothing is."""
    problem = f"the {service.display_name} has no setting '{name}'"
    if not service.config and not is_broker(service.name):
        return ""  # ZooKeeper's own properties
    if is_broker(service.name):
        from millstream.settings.config_def import BROKER as KEYS
        from millstream.settings.config_def import base_config_key, kafka_only

        # What only Kafka has is not a typo; the broker's log says why it has no effect.
        known = base_config_key(name) is not None or kafka_only(name)
        return "" if known else problem + did_you_mean(name, KEYS)
    module, _, class_name = service.config.partition(":")
    config: type[ServiceConfig] = getattr(importlib.import_module(module), class_name)
    if name in config.keys:
        return ""
    prefix = next((prefix for prefix in config.prefixes if name.startswith(prefix)), "")
    if not prefix:
        return problem + did_you_mean(name, config.keys)
    from millstream.client.client_properties import CLIENT_PROPERTIES

    # librdkafka, whose consumers the REST Proxy has, knows more names: only an evident typo is one.
    names = {*config.keys, *(prefix + other for other in CLIENT_PROPERTIES)}
    hint = "" if name in names else did_you_mean(name, names, EVIDENT)
    return problem + hint if hint else ""
