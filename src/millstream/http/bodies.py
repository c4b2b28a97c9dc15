"""A limit on the size of request bodies, and responses that are sent without the application."""

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyTooLarge(Exception):
    """Raised out of `receive`; the application lets it pass."""


async def refuse(
    send: Send, status: int, message: str, media_type: str, *headers: tuple[bytes, bytes], code: int = 0
) -> None:
    """An error as Confluent's services render it, sent without the application. `code`: Confluent's, where it
    is not the status."""
    body = orjson.dumps({"error_code": code or status, "message": message})
    start = [(b"content-type", media_type.encode()), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})


async def limited(
    app: ASGIApp, scope: Scope, receive: Receive, send: Send, max_bytes: int, media_type: str
) -> None:
    """Pass a request to the application; 413 as soon as its body is longer than `max_bytes`."""
    message = f"the body is larger than {max_bytes} bytes"
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > max_bytes:
            await refuse(send, 413, message, media_type)
            return
    started = False
    received = 0

    async def receive_counted() -> Message:
        nonlocal received
        event = await receive()
        if event["type"] == "http.request":
            received += len(event.get("body", b""))
            if received > max_bytes:
                raise BodyTooLarge
        return event

    async def send_watched(event: Message) -> None:
        nonlocal started
        started = True
        await send(event)

    try:
        await app(scope, receive_counted, send_watched)
    except BodyTooLarge:
        if not started:
            await refuse(send, 413, message, media_type)


def with_content_type(send: Send, media_type: str) -> Send:
    """Send the same response under another media type."""

    async def send_relabelled(event: Message) -> None:
        if event["type"] == "http.response.start":
            headers = [
                (b"content-type", media_type.encode()) if name == b"content-type" else (name, value)
                for name, value in event["headers"]
            ]
            event = {**event, "headers": headers}
        await send(event)

    return send_relabelled
