"""Logging in: PLAIN (RFC 4616), SCRAM (RFC 5802) and OAUTHBEARER (RFC 7628) inside Kafka's SaslHandshake and
SaslAuthenticate."""

import base64
import hashlib
import hmac
import os
from collections.abc import Callable
from typing import Any

from millstream.client.errors import check
from millstream.client.security import OAUTHBEARER, Sasl
from millstream.wire.errors import ErrorCode, KafkaError

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 1 << 20  # a broker must not be able to keep a client busy for hours

Request = Callable[..., Any]  # Connection.request


class MechanismNotOffered(KafkaError):
    """The listener has other mechanisms: `offered`."""

    def __init__(self, message: str, offered: list[str]) -> None:
        super().__init__(ErrorCode.unsupported_sasl_mechanism, message)
        self.offered = offered


def log_in(request: Request, sasl: Sasl, address: str) -> None:
    """Log in on a fresh connection. KafkaError sasl_authentication_failed if the broker, or its proof, is
    refused; MechanismNotOffered before the password is used for anything."""
    hello = request("sasl_handshake", mechanism=sasl.mechanism)
    if hello.error_code is ErrorCode.unsupported_sasl_mechanism:
        offered = ", ".join(hello.mechanisms) or "none"
        raise MechanismNotOffered(
            f"the broker at {address} does not offer sasl.mechanism {sasl.mechanism} (it offers {offered})",
            list(hello.mechanisms),
        )
    check(hello.error_code, subject=f"the broker at {address}")

    def exchange(message: bytes) -> bytes:
        answer = request("sasl_authenticate", auth_bytes=message)
        if answer.error_code is not ErrorCode.none:
            reason = answer.error_message or "the broker refuses the login"
            raise KafkaError(answer.error_code, f"login of '{sasl.username}' at {address} failed: {reason}")
        return bytes(answer.auth_bytes)

    if sasl.mechanism == "PLAIN":
        exchange(b"\0" + sasl.username.encode() + b"\0" + sasl.password.encode())
        return
    if sasl.mechanism == OAUTHBEARER:
        # RFC 7628: a refusal is an answer with the reason, which the client has to acknowledge.
        if exchange(b"n,,\x01auth=Bearer " + sasl.password.encode() + b"\x01\x01"):
            exchange(b"\x01")
        return
    scram = Scram(sasl, base64.b64encode(os.urandom(24)).decode())
    try:
        scram.finish(exchange(scram.answer(exchange(scram.first))))
    except ValueError as error:
        raise KafkaError(
            ErrorCode.sasl_authentication_failed, f"login of '{sasl.username}' at {address} failed: {error}"
        ) from None


class Scram:
    """The client's half of the conversation. ValueError when the other half is wrong."""

    def __init__(self, sasl: Sasl, nonce: str) -> None:
        self._hash = "sha256" if sasl.mechanism == "SCRAM-SHA-256" else "sha512"
        self._password = sasl.password.encode()
        self._nonce = nonce
        name = sasl.username.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}{',tokenauth=true' if sasl.delegated else ''}"
        self._server_signature = b""

    @property
    def first(self) -> bytes:
        return b"n,," + self._bare.encode()

    def answer(self, challenge: bytes) -> bytes:
        """The proof that we know the password."""
        fields = _fields(challenge)
        nonce, iterations = fields.get("r", ""), int(fields.get("i", "0") or 0)
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ValueError("the broker's nonce is not based on ours")
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise ValueError(f"the broker asks for {iterations} iterations")
        salt = base64.b64decode(fields.get("s", ""), validate=True)
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = self._mac(salted, b"Client Key")
        proofless = f"c={base64.b64encode(b'n,,').decode()},r={nonce}"
        signed = ",".join((self._bare, challenge.decode(), proofless)).encode()
        signature = self._mac(hashlib.new(self._hash, client_key).digest(), signed)
        proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
        self._server_signature = self._mac(self._mac(salted, b"Server Key"), signed)
        return f"{proofless},p={base64.b64encode(proof).decode()}".encode()

    def finish(self, last: bytes) -> None:
        """The broker's proof that it knows the password too."""
        fields = _fields(last)
        if "e" in fields:
            raise ValueError(fields["e"])
        if not hmac.compare_digest(base64.b64decode(fields.get("v", "")), self._server_signature):
            raise ValueError("the broker could not prove that it knows the password")

    def _mac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._hash).digest()


def _fields(message: bytes) -> dict[str, str]:
    return {part[0]: part[2:] for part in message.decode().split(",") if part[1:2] == "="}
