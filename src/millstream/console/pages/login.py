"""Coming in and leaving."""

from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse

from millstream.console.context import console_of, draw
from millstream.console.security import form_of, session_of, set_cookie

router = APIRouter()


def _target(text: str) -> str:
    """Where to go after the login: a path of this site and nothing else."""
    return text if text.startswith("/") and not text.startswith(("//", "/\\")) and "\n" not in text else "/"


@router.get("/login")
async def login_page(request: Request, next: str = "/") -> Response:
    if not console_of(request).sessions.has_users or session_of(request).user is not None:
        return RedirectResponse("/", 303)
    return draw(request, "login.html", target=_target(next), wrong="", name="")


@router.post("/login")
async def log_in(request: Request) -> Response:
    console = console_of(request)
    form = await form_of(request)
    name, target = form.get("name", ""), _target(form.get("next", "/"))
    wait = console.logins.waits(name)
    user = (
        None
        if wait
        else await console.pool.thread(lambda: console.logins.check(name, form.get("password", "")))
    )
    if user is None:
        wrong = f"Too many tries. Wait {wait} seconds." if wait else "Name or password is wrong."
        return draw(request, "login.html", 429 if wait else 401, target=target, wrong=wrong, name=name)
    answer = RedirectResponse(target, 303)
    session_id = console.sessions.log_in(user)
    set_cookie(answer.headers, console.sessions.cookie(session_id), request.url.scheme == "https")
    return answer


@router.post("/logout")
async def log_out(request: Request) -> Response:
    await form_of(request)
    console_of(request).sessions.log_out(session_of(request).id)
    return RedirectResponse("/login", 303)
