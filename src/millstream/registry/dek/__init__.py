"""The DEK registry: encryption keys for client-side field-level encryption, with Confluent's REST API.

A key encryption key (KEK) names a key inside a key management service (KMS). A data encryption key (DEK)
belongs to a subject, encrypts fields of its records, and is stored here encrypted under its KEK. Clients
encrypt and decrypt by themselves; only for a shared KEK does the registry ask the KMS, so that clients need
no access to it.

keys        KEKs and DEKs, and their records in Confluent's JSON
kms         the local KMS; new key material
state       everything that the topic says, in memory
rule_defaults  names of KEKs for rules that give only a key of a KMS
commands    what a change writes into the topic
registry    the topic `_dek_registry_keys`, opened when it is first needed
"""
