"""The error that a request can end with: an HTTP status, Confluent's error code and a message."""

from typing import Any


class HttpError(Exception):
    """Rendered as {"error_code": ..., "message": ...}."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message

    def body(self) -> dict[str, Any]:
        return {"error_code": self.code, "message": self.message}
