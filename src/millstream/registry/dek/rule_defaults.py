"""Rules that name a key of a KMS but no KEK: registering gives them a name for it, made from the key's id, so
that every client asks the DEK registry for the same one."""

from typing import Any

KEK_NAME = "encrypt.kek.name"
KMS_KEY_ID = "encrypt.kms.key.id"
KMS_TYPE = "encrypt.kms.type"
AWS_PREFIX = "arn:"
AWS_KMS = "aws-kms"


def with_kek_names(rule_set: dict[str, Any] | None) -> dict[str, Any] | None:
    """Domain rules with `encrypt.kek.name` and, where the key's id tells it, `encrypt.kms.type`."""
    if not rule_set or not rule_set.get("domainRules"):
        return rule_set
    return {**rule_set, "domainRules": [_completed(rule) for rule in rule_set["domainRules"]]}


def _completed(rule: dict[str, Any]) -> dict[str, Any]:
    given: dict[str, str] = rule.get("params") or {}
    if KMS_KEY_ID not in given:
        return rule
    key_id = str(given[KMS_KEY_ID])
    bare = key_id.removeprefix(AWS_PREFIX)
    made = {KEK_NAME: "".join(char if char.isalnum() or char in "_-" else "-" for char in bare)}
    if key_id.startswith(AWS_PREFIX):
        made[KMS_TYPE] = AWS_KMS
    return {**rule, "params": {name: (made | given)[name] for name in sorted(made | given)}}
