"""Delegation tokens (KIP-48): who made them, and what they are worth.

A token is an id in the metadata log and an HMAC of that id, made with `delegation.token.secret.key`: whoever
knows the HMAC logs in by SCRAM, with the id as user name and the HMAC in base64 as password, and is the
token's owner. The HMAC is in no log, every broker can compute it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable, Iterable

from millstream.cluster.image import Image
from millstream.cluster.security_records import Token


class Tokens:
    def __init__(self, secret: str | None, image: Callable[[], Image]) -> None:
        self._secret = secret.encode() if secret else b""
        self._image = image
        self._by_hmac: dict[bytes, str] = {}

    @property
    def enabled(self) -> bool:
        return bool(self._secret)

    def changed(self, token_ids: Iterable[str]) -> None:
        """These have come, gone or been renewed. Each costs an HMAC: not for all of them at each change."""
        known = self._image().tokens
        for token_id in token_ids:
            if not self.enabled:
                return
            if token_id in known:
                self._by_hmac[self.hmac_of(token_id)] = token_id
            else:
                self._by_hmac.pop(self.hmac_of(token_id), None)

    def hmac_of(self, token_id: str) -> bytes:
        return hmac.new(self._secret, token_id.encode(), hashlib.sha512).digest()

    def find(self, token_hmac: bytes) -> Token | None:
        return self._image().tokens.get(self._by_hmac.get(bytes(token_hmac), ""))

    def login(self, token_id: str) -> tuple[str, str, int] | None:
        """For SCRAM with `tokenauth=true`: the password of a token that is good now, its owner (`User:name`)
        and when it expires, in ms."""
        token = self._image().tokens.get(token_id) if self.enabled else None
        if token is None or min(token.expires_ms, token.max_ms) < time.time_ns() // 1_000_000:
            return None
        password = base64.b64encode(self.hmac_of(token_id)).decode()
        return password, token.owner, token.expires_ms
