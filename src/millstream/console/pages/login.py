"""Coming in and leaving."""

from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse

from millstream.console.context import get_console, render_page
from millstream.console.security import get_session, read_form

router = APIRouter()


def _target(text: str) -> str:
    """Where to go after the login: a path of this site and nothing else."""
    return text if text.startswith("/") and not text.startswith(("//", "/\\")) and "\n" not in text else "/"


@router.get("/login")
async def login_page(request: Request, next: str = "/") -> Response:
    if not get_console(request).sessions.has_users or get_session(request).user is not None:
        return RedirectResponse("/", 303)
    return render_page(request, "login.html", target=_target(next), wrong="", name="")


@router.post("/login")
async def log_in(request: Request) -> Response:
    console = get_console(request)
    form = await read_form(request)
    name, target = form.get("name", ""), _target(form.get("next", "/"))
    wait = console.logins.seconds_to_wait(name)
    user = (
        None
        if wait
        else await console.pool.run_blocking(lambda: console.logins.check(name, form.get("password", "")))
    )
    if user is None:
        wrong = f"Too many tries. Wait {wait} seconds." if wait else "Name or password is wrong."
        return render_page(request, "login.html", 429 if wait else 401, target=target, wrong=wrong, name=name)
    request.session["id"] = console.sessions.log_in(user)
    return RedirectResponse(target, 303)


@router.post("/logout")
async def log_out(request: Request) -> Response:
    await read_form(request)
    get_console(request).sessions.log_out(get_session(request).id)
    return RedirectResponse("/login", 303)
