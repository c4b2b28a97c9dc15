"""A small client of a Schema Registry. It asks once for each schema and keeps the answer: a schema under an
id never changes.

Standard library only, for any number of threads: each uses a connection of its own, kept open. Several
addresses may be given; when one does not answer, the next is tried.
"""

import base64
import http.client
import json
import ssl
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from millstream.client.errors import Unreachable
from millstream.client.security import Tls
from millstream.client.tls import tls_context
from millstream.schemas import ParsedSchema, Reference, parse
from millstream.settings.redaction import hide_url_passwords

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryUnreachable(Exception):
    """No address of the registry answers."""


class RegistryRefused(Exception):
    """The registry answered with an error; `code` is Confluent's."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True, eq=False)
class RegisteredSchema:
    """A schema with its id and the texts of all that it refers to."""

    id: int
    type: str
    text: str
    references: tuple[Reference, ...] = ()
    resolved: dict[str, str] = field(default_factory=dict)

    @cached_property
    def parsed(self) -> ParsedSchema:
        return parse(self.type, self.text, self.references, self.resolved)


class SchemaRegistry:
    def __init__(
        self,
        url: str | Sequence[str],
        *,
        user: str | None = None,
        password: str = "",
        token: str = "",
        authorization: str = "",
        ca_file: str | None = None,
        tls: Tls | None = None,
        timeout: float = 30.0,
    ) -> None:
        """By name and password, by a bearer token, or by a whole Authorization header. `tls` has whom to
        trust, as `ca_file`, and a certificate of ours for registries that want one."""
        urls = url.split(",") if isinstance(url, str) else list(url)
        self._addresses = [urlsplit(one.strip().rstrip("/")) for one in urls]
        for address in self._addresses:
            if address.scheme not in ("http", "https") or not address.hostname:
                shown = hide_url_passwords(address.geturl())
                raise ValueError(f"'{shown}' is not the address of a registry: use http://host:port")
        first = self._addresses[0]
        if user is None and first.username:
            user, password = unquote(first.username), unquote(first.password or "")
        self._headers = {"Accept": f"{MEDIA_TYPE}, application/json"}
        if token or authorization:
            self._headers["Authorization"] = authorization or f"Bearer {token}"
        elif user is not None:
            encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {encoded}"
        self._tls = tls or Tls(ca_file=ca_file or "")
        self._context = self._tls_context()
        self._timeout = timeout
        self._local = threading.local()
        self._by_id: dict[tuple[int, str], RegisteredSchema] = {}
        self._by_guid: dict[str, RegisteredSchema] = {}
        self._ids: dict[tuple[str, str, str, tuple[Reference, ...], bool], int] = {}

    # Pickled to Spark tasks: what is open stays behind.

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_local", "_context")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._local = threading.local()
        self._context = self._tls_context()

    def _tls_context(self) -> ssl.SSLContext | None:
        if not any(address.scheme == "https" for address in self._addresses):
            return None
        try:
            return tls_context(self._tls)
        except Unreachable as error:
            raise ValueError(str(error)) from None

    # Questions

    def schema(self, schema_id: int, subject: str = "") -> RegisteredSchema:
        """The schema with that id. `subject` matters only for ids of another context than the default one."""
        found = self._by_id.get((schema_id, subject))
        if found is None:
            query = f"?subject={quote(subject, safe='')}" if subject else ""
            found = self._made(schema_id, self._request("GET", f"/schemas/ids/{schema_id}{query}"))
            self._by_id[schema_id, subject] = found
        return found

    def schema_by_guid(self, guid: str) -> RegisteredSchema:
        found = self._by_guid.get(guid)
        if found is None:
            found = self._by_guid[guid] = self._made(-1, self._request("GET", f"/schemas/guids/{guid}"))
        return found

    def latest(self, subject: str) -> RegisteredSchema:
        """The newest schema of a subject; requested every time."""
        body = self.version(subject)
        return self._by_id.setdefault((int(body["id"]), ""), self._made(int(body["id"]), body))

    def version(self, subject: str, version: int | str = "latest") -> dict[str, Any]:
        """A version of a subject, as the registry describes it."""
        found: dict[str, Any] = self._request(
            "GET", f"/subjects/{quote(subject, safe='')}/versions/{version}"
        )
        return found

    def register(
        self,
        subject: str,
        text: str,
        schema_type: str = "AVRO",
        references: tuple[Reference, ...] = (),
        *,
        normalize: bool = False,
    ) -> int:
        return self._id(subject, text, schema_type, references, normalize, register=True)

    def look_up(
        self,
        subject: str,
        text: str,
        schema_type: str = "AVRO",
        references: tuple[Reference, ...] = (),
        *,
        normalize: bool = False,
    ) -> int:
        """The id of a schema that has to be registered already."""
        return self._id(subject, text, schema_type, references, normalize, register=False)

    def found(
        self, subject: str, text: str, schema_type: str = "AVRO", references: tuple[Reference, ...] = ()
    ) -> dict[str, Any]:
        """A schema of a subject as the registry describes it: its id, its version."""
        body = _request_body(text, schema_type, references)
        described: dict[str, Any] = self._request("POST", f"/subjects/{quote(subject, safe='')}", body)
        return described

    def version_of(self, schema_id: int, subject: str) -> int | None:
        """The newest version of a subject that has this id; None if there is none."""
        path = f"/schemas/ids/{schema_id}/versions?subject={quote(subject, safe='')}"
        versions = [int(one["version"]) for one in self._request("GET", path) if one["subject"] == subject]
        return max(versions, default=None)

    def subjects(self) -> list[str]:
        return list(self._request("GET", "/subjects"))

    def resolve(self, references: tuple[Reference, ...]) -> dict[str, str]:
        """The texts of references and of theirs, what is needed first first."""
        texts: dict[str, str] = {}
        for reference in references:
            if reference.name in texts:
                continue
            path = f"/subjects/{quote(reference.subject, safe='')}/versions/{reference.version}?deleted=true"
            body = self._request("GET", path)
            texts.update(self.resolve(_references(body)))
            texts[reference.name] = body["schema"]
        return texts

    def _id(
        self,
        subject: str,
        text: str,
        schema_type: str,
        references: tuple[Reference, ...],
        normalize: bool,
        *,
        register: bool,
    ) -> int:
        key = (subject, schema_type, text, references, normalize)
        found = self._ids.get(key)
        if found is None:
            body = _request_body(text, schema_type, references)
            path = f"/subjects/{quote(subject, safe='')}{'/versions' if register else ''}"
            answer = self._request("POST", f"{path}{'?normalize=true' if normalize else ''}", body)
            found = self._ids[key] = int(answer["id"])
        return found

    def _made(self, schema_id: int, body: dict[str, Any]) -> RegisteredSchema:
        references = _references(body)
        schema_type = body.get("schemaType") or "AVRO"
        return RegisteredSchema(schema_id, schema_type, body["schema"], references, self.resolve(references))

    # One request

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        failure: Exception | None = None
        for address in self._addresses:
            # A connection that was kept may have been closed by the other side meanwhile.
            for attempt in range(2):
                fresh = attempt > 0
                try:
                    status, answer = self._exchange(address, method, path, data, fresh)
                except (OSError, http.client.HTTPException) as error:
                    failure = error
                    continue
                if status >= 400:
                    raise _refused(status, answer)
                return json.loads(answer) if answer else None
        where = ", ".join(f"{one.scheme}://{one.hostname}:{one.port}" for one in self._addresses)
        raise RegistryUnreachable(f"the registry at {where} does not answer: {failure}")

    def _exchange(
        self, address: Any, method: str, path: str, data: bytes | None, fresh: bool
    ) -> tuple[int, bytes]:
        kept: dict[str, http.client.HTTPConnection] = self._local.__dict__.setdefault("kept", {})
        connection = None if fresh else kept.get(address.netloc)
        if connection is None:
            connection = self._connect(address)
        headers = {**self._headers, "Content-Type": MEDIA_TYPE} if data is not None else self._headers
        try:
            connection.request(method, address.path + path, data, headers)
            response = connection.getresponse()
            answer = response.read()
        except BaseException:
            connection.close()
            kept.pop(address.netloc, None)
            raise
        kept[address.netloc] = connection
        return response.status, answer

    def _connect(self, address: Any) -> http.client.HTTPConnection:
        if address.scheme == "https":
            return http.client.HTTPSConnection(
                address.hostname, address.port or 443, timeout=self._timeout, context=self._context
            )
        return http.client.HTTPConnection(address.hostname, address.port or 80, timeout=self._timeout)


def _request_body(text: str, schema_type: str, references: tuple[Reference, ...]) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": text, "schemaType": schema_type}
    if references:
        body["references"] = [
            {"name": one.name, "subject": one.subject, "version": one.version} for one in references
        ]
    return body


def _references(body: dict[str, Any]) -> tuple[Reference, ...]:
    return tuple(
        Reference(one["name"], one["subject"], int(one["version"])) for one in body.get("references") or ()
    )


def _refused(status: int, answer: bytes) -> RegistryRefused:
    try:
        body = json.loads(answer)
        return RegistryRefused(status, int(body["error_code"]), str(body["message"]))
    except (ValueError, KeyError, TypeError):
        return RegistryRefused(status, status, answer[:200].decode("utf-8", "replace") or f"HTTP {status}")
