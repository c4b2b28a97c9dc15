"""Bodies that are too large, and answers that come from around the application."""

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class TooMuch(Exception):
    """The body is larger than allowed."""


async def refuse(
    send: Send, status: int, message: str, media_type: str, *headers: tuple[bytes, bytes]
) -> None:
    """An error as Confluent's services answer it, without the application."""
    body = orjson.dumps({"error_code": status, "message": message})
    start = [(b"content-type", media_type.encode()), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})


async def limited(
    app: ASGIApp, scope: Scope, receive: Receive, send: Send, largest: int, media_type: str
) -> None:
    """Pass a request to the application, but no more than so many bytes of its body."""
    message = f"the body is larger than {largest} bytes"
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > largest:
            await refuse(send, 413, message, media_type)
            return
    began = False
    received = 0

    async def counted() -> Message:
        nonlocal received
        part = await receive()
        if part["type"] == "http.request":
            received += len(part.get("body", b""))
            if received > largest:
                raise TooMuch
        return part

    async def watched(part: Message) -> None:
        nonlocal began
        began = True
        await send(part)

    try:
        await app(scope, counted, watched)
    except TooMuch:
        if not began:
            await refuse(send, 413, message, media_type)


def with_type(send: Send, media_type: str) -> Send:
    """The same answer under another media type."""

    async def replaced(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [
                (b"content-type", media_type.encode()) if name == b"content-type" else (name, value)
                for name, value in message["headers"]
            ]
            message = {**message, "headers": headers}
        await send(message)

    return replaced
