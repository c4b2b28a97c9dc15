"""What clients send, checked: bodies of requests turned into values, or an error that says what is wrong.

Unknown fields are ignored, as newer clients may send them. Scalars are converted as Jackson does it for
Confluent's registry: "3" is a number where one is expected, 3 a text. Anything else of the wrong shape is
400.
"""

import re
from dataclasses import dataclass
from typing import Any

from millstream.registry.compatibility_levels import LEVELS
from millstream.registry.errors import (
    RegistryError,
    http_error,
    invalid_level,
    invalid_mode,
    invalid_rules,
    invalid_schema,
)
from millstream.registry.schema_records import Json
from millstream.schemas import Reference
from millstream.schemas.tags import Entity, EntityTags

MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD")
POLICIES = ("STRICT", "LENIENT")
CONFIG_FIELDS: dict[str, type] = {
    "alias": str,
    "aliasForDeks": str,
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
MIGRATION_MODES = ("UPGRADE", "DOWNGRADE", "UPDOWN")
DOMAIN_MODES = ("WRITE", "READ", "WRITEREAD")
RULE_LISTS = {
    "migrationRules": MIGRATION_MODES,
    "domainRules": DOMAIN_MODES,
    "encodingRules": DOMAIN_MODES,
}
ENTITY_TYPES = ("sr_record", "sr_field")
RULE_KINDS = ("TRANSFORM", "CONDITION")
RULE_MODES = MIGRATION_MODES + DOMAIN_MODES
RULE_TEXTS = ("name", "doc", "type", "expr", "onSuccess", "onFailure")
MAX_RULE_NAME = 256
RULE_NAME = re.compile(r"[^\W\d][\w-]*")
ENVIRONMENTS = ("ALL", "CLIENT", "GATEWAY", "SERVER", "NONE")
INTEGER = re.compile(r"[+-]?[0-9]{1,20}")


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
    tags_to_add: tuple[EntityTags, ...] = ()
    tags_to_remove: tuple[EntityTags, ...] = ()
    propagate_tags: bool = False  # those of the version before

    @property
    def changes_tags(self) -> bool:
        return bool(self.tags_to_add or self.tags_to_remove)


@dataclass(slots=True)
class TagsRequest:
    """Changes of the tags of a registered schema, for its next version. new_version 0: not given."""

    new_version: int = 0
    tags_to_add: tuple[EntityTags, ...] = ()
    tags_to_remove: tuple[EntityTags, ...] = ()
    metadata: Json | None = None
    rule_set: Json | None = None
    rules_to_merge: Json | None = None
    rules_to_remove: tuple[str, ...] | None = None


def _wrong(message: str) -> RegistryError:
    return http_error(400, message)


def _unprocessable(message: str) -> RegistryError:
    return http_error(422, message)


def json_object(body: Any) -> Json:
    if body is None:
        raise _unprocessable("the body must not be null")
    if not isinstance(body, dict):
        raise _wrong("the body must be a JSON object")
    return body


def optional(body: Json, name: str, expected: type) -> Any:
    """A field of a body; None where it is missing or null."""
    value = body.get(name)
    if value is None:
        return None
    converted = _converted(value, expected)
    if converted is _MISFIT:
        raise _wrong(f"{name}: expected {expected.__name__}, found {type(value).__name__}")
    return converted


_MISFIT = object()


def _converted(value: Any, expected: type) -> Any:
    """A JSON value as `kind`; None for an empty text where no text is wanted."""
    if expected in (list, dict):
        return value if isinstance(value, expected) else _MISFIT
    if isinstance(value, list | dict):
        return _MISFIT
    if expected is str:
        return (
            value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
        )
    if isinstance(value, str):
        value = value.strip()
        if not value:
            return None
        if expected is bool:
            return {"true": True, "false": False}.get(value.lower(), _MISFIT)
        return int(value) if INTEGER.fullmatch(value) else _MISFIT
    if expected is bool:
        return value if isinstance(value, bool) else bool(value) if isinstance(value, int) else _MISFIT
    try:
        return _MISFIT if isinstance(value, bool) else int(value)
    except (OverflowError, ValueError):
        return _MISFIT


def schema_request(body: Any) -> SchemaRequest:
    body = json_object(body)
    request = SchemaRequest(optional(body, "schema", str) or "")
    request.schema_type = optional(body, "schemaType", str) or "AVRO"
    references = []
    for item in optional(body, "references", list) or ():
        if not isinstance(item, dict):
            raise _wrong("references: expected objects with name, subject and version")
        name, subject = optional(item, "name", str), optional(item, "subject", str)
        version = optional(item, "version", int)
        if name is None or subject is None or version is None:
            raise invalid_schema("Invalid reference: each needs name, subject and version")
        _int32(version, "version")
        references.append(Reference(name, subject, version))
    request.references = tuple(references)
    request.metadata = metadata(optional(body, "metadata", dict))
    rules = optional(body, "ruleSet", dict)
    request.rule_set = rule_set(optional(body, "ruleset", dict) if rules is None else rules)
    version = optional(body, "version", int)
    schema_id = optional(body, "id", int)
    request.version = 0 if version is None else _int32(version, "version")
    request.id = -1 if schema_id is None else _int32(schema_id, "id")
    request.tags_to_add = entity_tags(body, "schemaTagsToAdd")
    request.tags_to_remove = entity_tags(body, "schemaTagsToRemove")
    request.propagate_tags = bool(optional(body, "propagateSchemaTags", bool))
    return request


def tags_request(body: Any) -> TagsRequest:
    body = json_object(body)
    new_version = optional(body, "newVersion", int)
    removed = optional(body, "rulesToRemove", list)
    request = TagsRequest(
        0 if new_version is None else _int32(new_version, "newVersion"),
        entity_tags(body, "tagsToAdd"),
        entity_tags(body, "tagsToRemove"),
        metadata(optional(body, "metadata", dict)),
        rule_set(optional(body, "ruleSet", dict)),
        rule_set(optional(body, "rulesToMerge", dict)),
        None if removed is None else tuple(str(name) for name in removed),
    )
    if request.rule_set is not None and (
        request.rules_to_merge is not None or request.rules_to_remove is not None
    ):
        raise invalid_rules("ruleSet should be omitted if specifying rulesToMerge or rulesToRemove")
    return request


def entity_tags(body: Json, name: str) -> tuple[EntityTags, ...]:
    found = []
    for item in optional(body, name, list) or ():
        entity = optional(item, "schemaEntity", dict) if isinstance(item, dict) else None
        path = optional(entity, "entityPath", str) if entity else None
        if entity is None or path is None:
            raise _wrong(f"{name}: each needs a schemaEntity with entityPath and entityType, and tags")
        entity_type = optional(entity, "entityType", str)
        if entity_type not in ENTITY_TYPES:
            raise _wrong(f"entityType: expected one of {', '.join(ENTITY_TYPES)}, found {entity_type}")
        tags = tuple(str(tag) for tag in optional(item, "tags", list) or ())
        found.append(EntityTags(Entity(path, entity_type == "sr_record"), tags))
    return tuple(found)


def _int32(value: int, name: str) -> int:
    if not -(2**31) <= value < 2**31:
        raise _wrong(f"{name}: {value} is out of range")
    return value


def metadata(value: Any) -> Json | None:
    """Metadata in a fixed order, without what is empty."""
    if value is None:
        return None
    tags = optional(value, "tags", dict) or {}
    properties = optional(value, "properties", dict) or {}
    sensitive = optional(value, "sensitive", list) or []
    if not all(isinstance(items, list) for items in tags.values()):
        raise _wrong("metadata: tags must be lists of strings")
    made: Json = {}
    if tags:
        made["tags"] = {key: sorted({_text(item, "tags") for item in tags[key]}) for key in sorted(tags)}
    if properties:
        made["properties"] = {key: _text(properties[key], key) for key in sorted(properties)}
    if sensitive:
        made["sensitive"] = sorted({_text(item, "sensitive") for item in sensitive})
    return made


def _text(value: Any, name: str) -> str:
    text = _MISFIT if value is None else _converted(value, str)
    if not isinstance(text, str):
        raise _wrong(f"{name}: expected text")
    return text


def rule_set(value: Any) -> Json | None:
    """Rules are kept for clients, which run them; here they are only checked for sense. A rule set without
    rules is one, too: it ends those of the version before."""
    if value is None:
        return None
    made: Json = {}
    names: set[str] = set()
    for list_name, modes in RULE_LISTS.items():
        rules = [_rule(rule, list_name) for rule in optional(value, list_name, list) or []]
        for rule in rules:
            name = rule.get("name")
            if name in names:
                raise invalid_rules(f"Found rule with duplicate name '{name}'")
            _check_rule(rule)
            names.add(rule["name"])
            if rule["mode"] not in modes:
                group = list_name.removesuffix("Rules").capitalize()
                raise invalid_rules(f"{group} rules can only be {', '.join(modes)}")
        if rules:
            made[list_name] = rules
    environment = optional(value, "enableAt", str)
    if environment is not None:
        if environment not in ENVIRONMENTS:
            raise _wrong(f"enableAt: expected one of {', '.join(ENVIRONMENTS)}")
        made["enableAt"] = environment
    return made


def _rule(value: Any, list_name: str) -> Json:
    """A rule with kind and mode, in a fixed order, and without what is empty."""
    if not isinstance(value, dict):
        raise _wrong(f"ruleSet: {list_name} must be objects")
    rule = {
        "kind": "TRANSFORM",
        "mode": "WRITEREAD",
        **{name: item for name, item in value.items() if item is not None},
    }
    for name in RULE_TEXTS:
        if name in rule:
            rule[name] = optional(rule, name, str)
    if "tags" in rule:
        rule["tags"] = sorted({_text(tag, "tags") for tag in optional(rule, "tags", list) or ()})
    if "params" in rule:
        given = optional(rule, "params", dict) or {}
        rule["params"] = {name: _text(given[name], name) for name in sorted(given)}
    if "disabled" in rule:
        rule["disabled"] = bool(optional(rule, "disabled", bool))
    for name, allowed in (("kind", RULE_KINDS), ("mode", RULE_MODES)):
        if rule[name] not in allowed:
            raise _wrong(f"{name}: expected one of {', '.join(allowed)}")
    return {key: item for key, item in rule.items() if key == "name" or item not in ([], {}, "")}


def _check_rule(rule: Json) -> None:
    name = rule.get("name")
    if name is None:
        raise invalid_rules("Missing rule name")
    if not name:
        raise invalid_rules("Empty rule name")
    if len(name) > MAX_RULE_NAME:
        raise invalid_rules("Rule name too long")
    if RULE_NAME.fullmatch(name) is None:
        raise invalid_rules(f"Illegal character in rule name: {name}")
    if rule.get("type") is None:
        raise invalid_rules("Missing rule type")
    if rule["mode"] not in ("WRITEREAD", "UPDOWN"):
        for action in ("onSuccess", "onFailure"):
            if "," in rule.get(action, ""):
                raise invalid_rules("Multiple actions only valid with WRITEREAD and UPDOWN")


def config_request(body: Any) -> Json:
    """The fields to change; None where a field is to be removed."""
    body = dict(json_object(body))
    if "compatibility" in body:
        body["compatibilityLevel"] = body.pop("compatibility")
    changes: Json = {}
    for name, expected in CONFIG_FIELDS.items():
        if name in body:
            changes[name] = optional(body, name, expected)
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
    mode = optional(json_object(body), "mode", str)
    if mode is None:
        return None
    if mode.upper() not in MODES:
        raise invalid_mode()
    return str(mode.upper())
