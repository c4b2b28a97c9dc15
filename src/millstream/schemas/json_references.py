"""Finds what a `$ref` means: in the same document by pointer or anchor, in a sub-schema with its own `$id`,
in a schema that the registry keeps (a reference, by name), or in one of the meta-schemas. Nothing is ever
fetched from the network.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from millstream.schemas.json_text import loads
from millstream.schemas.schema import InvalidSchema

BASE = "mem://input/"  # of a schema without an id
MAP_KEYWORDS = frozenset(
    {"properties", "patternProperties", "definitions", "$defs", "dependencies", "dependentSchemas"}
)


@dataclass(frozen=True, slots=True)
class Found:
    """A schema, and the address that relative references inside of it start from."""

    schema: Any
    base: str


class Documents:
    """The root schema and everything that it may refer to."""

    def __init__(self, root: Any, resolved: Mapping[str, str], id_word: str) -> None:
        self._id_word = id_word
        self._by_address: dict[str, Found] = {}
        self._anchors: dict[tuple[str, str], Found] = {}
        root = _bridged(root)
        own = root.get(id_word) if isinstance(root, dict) else None
        self.base = urldefrag(urljoin(BASE, own))[0] if isinstance(own, str) else BASE
        self.root = Found(root, self.base)
        self._names: dict[str, Found] = {}
        for name, text in resolved.items():
            try:
                document = _bridged(loads(text))
            except ValueError as error:
                raise InvalidSchema(f"reference {name}: {error}") from None
            found = Found(document, urljoin(self.base, name))
            self._names[name] = self._names[name.removeprefix("./")] = found
            for base in (self.base, BASE):
                self._by_address.setdefault(urldefrag(urljoin(base, name))[0], found)
            self._index(document, found.base)
        self._by_address[self.base] = self._by_address[BASE] = self.root
        self._index(root, self.base)

    def _index(self, schema: Any, base: str) -> None:
        for value, address in _subschemas(schema, base, self._id_word):
            own = value.get(self._id_word)
            if isinstance(own, str):
                if own.startswith("#"):
                    self._anchors.setdefault((address, own[1:]), Found(value, address))
                else:
                    self._by_address.setdefault(address, Found(value, address))
            for word in ("$anchor", "$dynamicAnchor"):
                if isinstance(value.get(word), str):
                    self._anchors.setdefault((address, value[word]), Found(value, address))

    def find(self, reference: str, base: str) -> Found:
        address, fragment = urldefrag(urljoin(base, reference))
        plain = urldefrag(reference)[0]
        document = self._names.get(plain) if plain else None
        if document is None:
            document = self._by_address.get(address) or (None if plain else self.root)
        if document is None:
            document = self._meta_schema(address)
        if document is None:
            raise InvalidSchema(f"could not resolve the reference {reference}: no reference has that name")
        if not fragment:
            return document
        if not fragment.startswith("/"):
            anchored = self._anchors.get((document.base, fragment))
            if anchored is None:
                raise InvalidSchema(f"could not resolve the reference {reference}: no such anchor")
            return anchored
        return self._by_pointer(document, fragment, reference)

    def _by_pointer(self, document: Found, pointer: str, reference: str) -> Found:
        value, base = document.schema, document.base
        for part in pointer[1:].split("/"):
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and key in value:
                value = value[key]
            elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
                value = value[int(key)]
            else:
                raise InvalidSchema(f"could not resolve the reference {reference}: nothing at {key}")
            if isinstance(value, dict) and isinstance(value.get(self._id_word), str):
                base = urldefrag(urljoin(base, value[self._id_word]))[0]
        return Found(value, base)

    def _meta_schema(self, address: str) -> Found | None:
        if "json-schema.org/" not in address:
            return None
        from jsonschema_specifications import REGISTRY

        for scheme in ("http", "https"):
            wanted = f"{scheme}:{address.partition(':')[2]}"
            for candidate in (wanted, f"{wanted}#"):
                resource = REGISTRY.get(candidate)
                if resource is not None:
                    found = Found(resource.contents, address)
                    self._by_address[address] = found
                    self._index(found.schema, address)
                    return found
        return None


def _bridged(root: Any) -> Any:
    """With `definitions` found under `$defs` too, whichever of the two words a reference uses."""
    if not isinstance(root, dict) or not isinstance(root.get("definitions"), dict) or not root["definitions"]:
        return root
    existing = root.get("$defs", {})
    if not isinstance(existing, dict):
        return root
    return {**root, "$defs": {**root["definitions"], **existing}}


def _subschemas(schema: Any, base: str, id_word: str) -> Iterator[tuple[dict[str, Any], str]]:
    if isinstance(schema, list):
        for item in schema:
            yield from _subschemas(item, base, id_word)
    if not isinstance(schema, dict):
        return
    own = schema.get(id_word)
    if isinstance(own, str) and not own.startswith("#"):
        base = urldefrag(urljoin(base, own))[0]
    yield schema, base
    for word, value in schema.items():
        if word in ("enum", "const", "default", "examples"):
            continue
        if word in MAP_KEYWORDS and isinstance(value, dict):
            for child in value.values():
                yield from _subschemas(child, base, id_word)
        elif isinstance(value, dict | list):
            yield from _subschemas(value, base, id_word)
