"""What the DEK registry refuses requests with: Confluent's codes and messages."""

from millstream.registry.errors import RegistryError


def key_not_found(name: str) -> RegistryError:
    return RegistryError(404, 40470, f"Key '{name}' not found")


def not_soft_deleted(name: str) -> RegistryError:
    return RegistryError(404, 40471, f"Key '{name}' was not deleted first before being permanently deleted")


def soft_deleted(name: str) -> RegistryError:
    return RegistryError(404, 40472, f"Key '{name}' must be undeleted first")


def already_exists(name: str) -> RegistryError:
    return RegistryError(409, 40971, f"Key '{name}' already exists; use a different value")


def too_many_keys(maximum: int) -> RegistryError:
    return RegistryError(409, 40972, f"A maximum of {maximum} keys already exist")


def invalid_field(name: str) -> RegistryError:
    return RegistryError(422, 42271, f"Invalid or missing value for field '{name}' of key")


def reference_exists(name: str) -> RegistryError:
    return RegistryError(422, 42272, f"One or more references exist to the key '{name}'")


def generation_failed(message: str) -> RegistryError:
    return RegistryError(500, 50070, message)
