"""What clients send, checked: bodies of requests turned into values, or an error that says what is wrong.

Unknown fields are ignored, as newer clients may send them.
"""

from dataclasses import dataclass
from typing import Any

from millstream.registry.compatibility_levels import LEVELS
from millstream.registry.errors import RegistryError, http_error, invalid_level, invalid_mode, invalid_rules
from millstream.registry.schema_records import Json
from millstream.schemas import Reference

MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD")
POLICIES = ("STRICT", "LENIENT")
CONFIG_FIELDS: dict[str, type] = {
    "alias": str,
    "normalize": bool,
    "validateFields": bool,
    "validateNewSchemas": bool,
    "validateRules": bool,
    "compatibilityLevel": str,
    "compatibilityPolicy": str,
    "compatibilityGroup": str,
    "defaultMetadata": dict,
    "overrideMetadata": dict,
    "defaultRuleSet": dict,
    "overrideRuleSet": dict,
}
RULE_LISTS = ("migrationRules", "domainRules", "encodingRules")
RULE_KINDS = ("TRANSFORM", "CONDITION")
RULE_MODES = ("UPGRADE", "DOWNGRADE", "UPDOWN", "WRITE", "READ", "WRITEREAD")


@dataclass(slots=True)
class SchemaRequest:
    """A schema to register, look up or check. version 0: not given; id -1: not given."""

    text: str
    schema_type: str = "AVRO"
    references: tuple[Reference, ...] = ()
    metadata: Json | None = None
    rule_set: Json | None = None
    version: int = 0
    id: int = -1


def _wrong(message: str) -> RegistryError:
    return http_error(400, message)


def _unprocessable(message: str) -> RegistryError:
    return http_error(422, message)


def _object(body: Any) -> Json:
    if body is None:
        raise _unprocessable("the body must not be null")
    if not isinstance(body, dict):
        raise _wrong("the body must be a JSON object")
    return body


def _optional(body: Json, name: str, kind: type) -> Any:
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _wrong(f"{name}: expected {kind.__name__}, found {type(value).__name__}")
    return value


def schema_request(body: Any) -> SchemaRequest:
    body = _object(body)
    request = SchemaRequest(_optional(body, "schema", str) or "")
    request.schema_type = _optional(body, "schemaType", str) or "AVRO"
    references = []
    for item in _optional(body, "references", list) or ():
        if not isinstance(item, dict):
            raise _wrong("references: expected objects with name, subject and version")
        name, subject = _optional(item, "name", str), _optional(item, "subject", str)
        version = _optional(item, "version", int)
        if name is None or subject is None or version is None:
            raise _unprocessable("references: each needs name, subject and version")
        _int32(version, "version")
        references.append(Reference(name, subject, version))
    request.references = tuple(references)
    request.metadata = metadata(_optional(body, "metadata", dict))
    request.rule_set = rule_set(_optional(body, "ruleSet", dict) or _optional(body, "ruleset", dict))
    version = _optional(body, "version", int)
    schema_id = _optional(body, "id", int)
    request.version = 0 if version is None else _int32(version, "version")
    request.id = -1 if schema_id is None else _int32(schema_id, "id")
    return request


def _int32(value: int, name: str) -> int:
    if not -(2**31) <= value < 2**31:
        raise _wrong(f"{name}: {value} is out of range")
    return value


def metadata(value: Any) -> Json | None:
    """Metadata in a fixed order, without what is empty."""
    if value is None:
        return None
    tags = _optional(value, "tags", dict) or {}
    properties = _optional(value, "properties", dict) or {}
    sensitive = _optional(value, "sensitive", list) or []
    if not all(
        isinstance(items, list) and all(isinstance(item, str) for item in items) for items in tags.values()
    ):
        raise _wrong("metadata: tags must be lists of strings")
    if not all(isinstance(item, str) for item in (*properties.values(), *sensitive)):
        raise _wrong("metadata: properties and sensitive must be strings")
    made: Json = {}
    if tags:
        made["tags"] = {key: sorted(set(tags[key])) for key in sorted(tags)}
    if properties:
        made["properties"] = {key: properties[key] for key in sorted(properties)}
    if sensitive:
        made["sensitive"] = sorted(set(sensitive))
    return made


def rule_set(value: Any) -> Json | None:
    """Rules are kept for clients, which run them; here they are only checked for sense."""
    if value is None:
        return None
    made: Json = {}
    for kind in RULE_LISTS:
        rules = _optional(value, kind, list) or []
        names = set()
        for rule in rules:
            if not isinstance(rule, dict):
                raise _wrong(f"ruleSet: {kind} must be objects")
            name = rule.get("name")
            if not isinstance(name, str) or not name:
                raise invalid_rules("Missing rule name")
            if name in names:
                raise invalid_rules(f"Found rule with duplicate name '{name}'")
            names.add(name)
            if rule.get("kind", "TRANSFORM") not in RULE_KINDS:
                raise invalid_rules(f"Invalid rule kind '{rule['kind']}'")
            if rule.get("mode", "WRITEREAD") not in RULE_MODES:
                raise invalid_rules(f"Invalid rule mode '{rule['mode']}'")
            if not isinstance(rule.get("type"), str) or not rule["type"]:
                raise invalid_rules("Missing rule type")
        if rules:
            made[kind] = [
                {key: item for key, item in rule.items() if item is not None and item not in ([], {}, "")}
                for rule in rules
            ]
    if isinstance(value.get("enableAt"), str):
        made["enableAt"] = value["enableAt"]
    return made or None


def config_request(body: Any) -> Json:
    """The fields to change; None where a field is to be removed."""
    body = dict(_object(body))
    if "compatibility" in body:
        body["compatibilityLevel"] = body.pop("compatibility")
    changes: Json = {}
    for name, kind in CONFIG_FIELDS.items():
        if name in body:
            changes[name] = _optional(body, name, kind)
    level = changes.get("compatibilityLevel")
    if level is not None:
        changes["compatibilityLevel"] = level.upper()
        if changes["compatibilityLevel"] not in LEVELS:
            raise invalid_level()
    policy = changes.get("compatibilityPolicy")
    if policy is not None:
        changes["compatibilityPolicy"] = policy.upper()
        if changes["compatibilityPolicy"] not in POLICIES:
            raise _unprocessable("Invalid compatibility policy. Valid values are strict and lenient")
    for name in ("defaultMetadata", "overrideMetadata"):
        if changes.get(name) is not None:
            changes[name] = metadata(changes[name])
    for name in ("defaultRuleSet", "overrideRuleSet"):
        if changes.get(name) is not None:
            changes[name] = rule_set(changes[name])
    return changes


def mode_request(body: Any) -> str | None:
    """The mode to set; None to remove it."""
    mode = _optional(_object(body), "mode", str)
    if mode is None:
        return None
    if mode.upper() not in MODES:
        raise invalid_mode()
    return str(mode.upper())
