"""What a request can be refused with: HTTP status, Confluent's error code and its message, to the letter."""

from millstream.http.errors import HttpError


class RegistryError(HttpError):
    """Answered as {"error_code": ..., "message": ...}."""


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(404, 40401, f"Subject '{subject}' not found.")


def version_not_found(version: int | str) -> RegistryError:
    return RegistryError(404, 40402, f"Version {version} not found.")


def schema_not_found(what: int | str | None = None) -> RegistryError:
    return RegistryError(404, 40403, "Schema not found" if what is None else f"Schema {what} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(
        404, 40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently"
    )


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(
        404, 40405, f"Subject '{subject}' was not deleted first before being permanently deleted"
    )


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        404,
        40406,
        f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently",
    )


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        404,
        40407,
        f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted",
    )


def no_subject_config(subject: str) -> RegistryError:
    return RegistryError(
        404, 40408, f"Subject '{subject}' does not have subject-level compatibility configured"
    )


def no_subject_mode(subject: str) -> RegistryError:
    return RegistryError(404, 40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, reasons: list[str]) -> RegistryError:
    return RegistryError(
        409,
        40901,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", '
        f"details: [{', '.join(reasons)}]",
    )


def invalid_schema(message: str) -> RegistryError:
    return RegistryError(422, 42201, message)


def invalid_version(version: str) -> RegistryError:
    return RegistryError(
        422,
        42202,
        f"The specified version '{version}' is not a valid version id. Allowed values are between "
        '[1, 2^31-1] and the string "latest"',
    )


def invalid_level() -> RegistryError:
    return RegistryError(
        422,
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive",
    )


def invalid_mode(message: str = "") -> RegistryError:
    valid = "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, IMPORT and FORWARD."
    return RegistryError(422, 42204, message or valid)


def not_permitted(message: str) -> RegistryError:
    return RegistryError(422, 42205, message)


def reference_exists(subject: str, version: int) -> RegistryError:
    return RegistryError(
        422, 42206, f"One or more references exist to the schema of subject '{subject}' version {version}."
    )


def invalid_subject(subject: str) -> RegistryError:
    return RegistryError(422, 42208, f"The specified subject '{subject}' is not a valid.")


def too_large() -> RegistryError:
    return RegistryError(422, 42209, "Register operation failed because schema is too large")


def invalid_rules(message: str) -> RegistryError:
    return RegistryError(422, 42210, message)


def context_not_empty(context: str) -> RegistryError:
    return RegistryError(422, 42211, f"The specified context '{context}' is not empty.")


def no_more_ids(context: str) -> RegistryError:
    return RegistryError(422, 42205, f"The ids of context {context} are used up: the highest is 2^31-1")


def store_failed(message: str) -> RegistryError:
    return RegistryError(500, 50001, message)


def timed_out(message: str) -> RegistryError:
    return RegistryError(500, 50002, message)


def forwarding_failed(message: str) -> RegistryError:
    return RegistryError(500, 50003, message)


def unknown_leader(message: str = "Leader not known.") -> RegistryError:
    return RegistryError(500, 50004, message)


def http_error(status: int, message: str) -> RegistryError:
    return RegistryError(status, status, message)


def denied(operation: str, subject: str, *, named: bool = True) -> RegistryError:
    """In Confluent's words. Without `named` the subject is none that the caller knows."""
    what = f"Subject: {subject}" if named else "Schema"
    return RegistryError(403, 40301, f"User is denied operation {operation} on {what}")


def denied_globally(operation: str) -> RegistryError:
    return RegistryError(403, 40301, f"User is denied operation: this needs {operation} on the cluster")


def operations_unknown(reason: str) -> RegistryError:
    return RegistryError(503, 50302, f"The cluster does not say what the caller may do: {reason}")
