"""What a request about associations is refused with: Confluent's codes and messages."""

from millstream.registry.errors import RegistryError


def not_found(resource: str) -> RegistryError:
    return RegistryError(404, 40410, f"Association for '{resource}' not found.")


def incompatible(problems: list[str]) -> RegistryError:
    return RegistryError(409, 40901, f"[{', '.join(problems)}]")


def exists_for_resource(association_type: str, resource: str) -> RegistryError:
    return RegistryError(
        409, 40903, f"An association of type '{association_type}' already exists for resource '{resource}'"
    )


def exists_for_subject(subject: str) -> RegistryError:
    return RegistryError(409, 40904, f"An association already exists for subject '{subject}'")


def strong_exists_for_subject(subject: str) -> RegistryError:
    return RegistryError(409, 40905, f"A strong association already exists for subject '{subject}'")


def no_active_version(subject: str) -> RegistryError:
    return RegistryError(409, 40907, f"No active (non-deleted) version exists for subject '{subject}'")


def frozen(association_type: str, subject: str) -> RegistryError:
    return RegistryError(
        409, 40908, f"The association of type  '{association_type}' is frozen for subject '{subject}'"
    )


def referenced(subject: str) -> RegistryError:
    return RegistryError(422, 42206, f"One or more references exist to the schema {subject}.")


def invalid(name: str, detail: str) -> RegistryError:
    return RegistryError(
        422,
        42212,
        f"The association specified an invalid value for property: '{name}', detail: {detail}",
    )
