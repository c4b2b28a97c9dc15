"""`response.http.headers.config`: what is added to responses, and what is not understood."""

from email.utils import parsedate_to_datetime

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from millstream.http.response_headers import with_response_headers
from millstream.settings.values import InvalidSetting


async def hello(request: Request) -> Response:
    return JSONResponse({})


async def headers(setting: str) -> httpx.Headers:
    app = with_response_headers(Starlette(routes=[Route("/", hello)]), setting)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        return (await client.get("/")).headers


async def test_set_and_add() -> None:
    found = await headers(
        'set X-Frame-Options: DENY, "add Cache-Control: no-cache, no-store", add X-Note: a: b, '
        "set x-frame-options: SAMEORIGIN, add X-Note: c"
    )
    assert found.get_list("X-Frame-Options") == ["SAMEORIGIN"]
    assert found.get_list("Cache-Control") == ["no-cache, no-store"]
    assert found.get_list("X-Note") == ["a: b", "c"]


async def test_what_the_service_says_stays() -> None:
    found = await headers("set Content-Type: text/html, SET X-A: 1")
    assert found.get_list("Content-Type") == ["application/json"]
    assert found["X-A"] == "1"


async def test_dates_count_from_now() -> None:
    found = await headers("setDate Expires: 0, addDate Next: 3600000")
    apart = parsedate_to_datetime(found["Next"]) - parsedate_to_datetime(found["Expires"])
    assert abs(apart.total_seconds() - 3600) <= 1


@pytest.mark.parametrize(
    "setting", ["remove X: 1", "set X", "set X Y: 1", "setDate X: tomorrow", "set X: a\r\nY: b", "set X: 1,"]
)
def test_what_is_not_understood(setting: str) -> None:
    with pytest.raises(InvalidSetting, match=r"response\.http\.headers\.config"):
        with_response_headers(Starlette(), setting)
