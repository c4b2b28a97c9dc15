"""Coming in and leaving."""

from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse

from millstream.console.context import get_console, render_page
from millstream.console.security import get_session, read_form
from millstream.console.users import User, user_of
from millstream.http.cluster_login import Caller, ClusterLogin, LoginNotChecked, LoginRefused
from millstream.http.login_failures import TooManyTries

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
    address = request.client.host if request.client is not None else ""
    status, wrong = 401, "Name or password is wrong."
    user: User | None = None
    caller: Caller | None = None
    try:
        if isinstance(console.logins, ClusterLogin):
            if "BASIC" not in console.settings.methods:
                raise LoginRefused
            caller = await console.logins.password(name, form.get("password", ""), address)
            user = user_of(caller)
            if not user.roles:
                user, status = None, 403
                wrong = "You may not use the console: that needs DESCRIBE on the cluster."
        else:
            user = await console.logins.check(name, form.get("password", ""), address)
    except LoginRefused:
        pass
    except LoginNotChecked:
        status, wrong = 503, "The cluster does not answer, so nobody can log in."
    except TooManyTries as error:
        status, wrong = 429, str(error)
    if user is None:
        return render_page(request, "login.html", status, target=target, wrong=wrong, name=name)
    request.session["id"] = console.sessions.log_in(user, caller)
    return RedirectResponse(target, 303)


@router.post("/logout")
async def log_out(request: Request) -> Response:
    await read_form(request)
    get_console(request).sessions.log_out(get_session(request).id)
    return RedirectResponse("/login", 303)
