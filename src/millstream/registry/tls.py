"""TLS for talking to other instances, from Kafka's ssl.* settings."""

import ssl

from millstream.registry.registry_config import RegistrySettings


def client_context(settings: RegistrySettings) -> ssl.SSLContext:
    """For passing requests on to the leader."""
    context = ssl.create_default_context()
    trusted = settings.value("ssl.truststore.location")
    if trusted:
        context.load_verify_locations(trusted)
    if not settings.value("ssl.endpoint.identification.algorithm"):
        context.check_hostname = False
    location = settings.value("ssl.keystore.location")
    if location and str(settings.value("ssl.keystore.type")).upper() == "PEM":
        context.load_cert_chain(location, password=settings.secret("ssl.key.password"))
    return context
