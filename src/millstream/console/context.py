"""What the pages share: the settings, the pool, the sampler, the registry, and how a page is drawn."""

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.responses import HTMLResponse

from millstream import __version__
from millstream.console import formatting
from millstream.console.console_config import ConsoleConfig, readable
from millstream.console.masking import Masks
from millstream.console.metrics import collect
from millstream.console.pipeline_reports import PipelineReports
from millstream.console.pool import ClusterPool
from millstream.console.record_display import RecordRenderer
from millstream.console.registry import Registry
from millstream.console.sampling import Sampler
from millstream.console.security import Sessions, get_session
from millstream.console.users import LoginChecker, User, read_users
from millstream.http.cluster_authentication import mapping_rules
from millstream.http.cluster_login import ClusterLogin
from millstream.http.metrics import ServiceMetrics

HERE = Path(__file__).parent
WARM_AFTER = 1.0


@dataclass
class Console:
    """One running console."""

    settings: ConsoleConfig
    pool: ClusterPool
    sampler: Sampler
    registry: Registry | None
    masks: Masks
    renderer: RecordRenderer
    sessions: Sessions
    logins: LoginChecker | ClusterLogin
    templates: Environment
    ending: asyncio.Event
    pipelines: PipelineReports
    tails: int = 0
    searches: dict[str, Any] = field(default_factory=dict)
    # A word about what was done, for the next page of a session.
    flash_messages: dict[str, str] = field(default_factory=dict)
    metrics: ServiceMetrics = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = ServiceMetrics("console", lambda: collect(self))

    async def start(self) -> str:
        self.sampler.start()
        asyncio.get_running_loop().call_later(WARM_AFTER, self._warm)
        await self.sampler.next_round(0.3)
        return f"cluster={self.settings.bootstrap}"

    def _warm(self) -> None:
        if not self.ending.is_set():
            warming = asyncio.ensure_future(self.pool.run_blocking(self._compile))
            warming.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _compile(self) -> None:
        """All templates, so that visitors do not wait for it; but not at once, when other services start
        beside us."""
        for name in self.templates.list_templates():
            self.templates.get_template(name)

    async def stop(self) -> None:
        self.ending.set()
        for search in list(self.searches.values()):
            search.cancel()
        self.sampler.stop()
        self.logins.close()
        self.pool.close()


def make_console(settings: ConsoleConfig) -> Console:
    users: dict[str, User] = {}
    if settings.value("users.file"):
        users = read_users(settings.value("users.file"))
    rules = settings.value("masking.file")
    masks = Masks(readable(rules) if rules else "", settings.signing)
    url = settings.registry_url
    login = None
    if settings.cluster_users:
        login = ClusterLogin(
            settings.client(),
            settings.value("login.failures.per.address"),
            mechanisms=settings.value("authentication.sasl.mechanisms"),
            mapping_rules=mapping_rules(settings, settings.methods),
        )
    authority = settings.value("schema.registry.ssl.truststore.location")
    registry = Registry(url, ca_file=authority, timeout=5.0) if url else None
    return Console(
        settings=settings,
        pool=ClusterPool(settings.client()),
        sampler=Sampler(settings.client(), settings.value("sample.interval.ms") / 1000),
        registry=registry,
        masks=masks,
        renderer=RecordRenderer(registry, masks, settings.value("message.show.bytes")),
        sessions=Sessions(settings, bool(users) or login is not None, login),
        logins=LoginChecker(users, settings.value("login.failures.per.address")) if login is None else login,
        templates=_templates(),
        ending=asyncio.Event(),
        pipelines=PipelineReports(settings.value("pipelines.topic")),
    )


def get_console(request: Request) -> Console:
    found: Console = request.app.state.console
    return found


def flash(request: Request, text: str) -> None:
    """A word for the top of the next page that this browser gets."""
    flash_messages = get_console(request).flash_messages
    if len(flash_messages) > 1000:
        flash_messages.clear()
    flash_messages[get_session(request).id] = text


def render_page(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A page, or a part of one."""
    return HTMLResponse(render_template(request, template, **values), status)


def render_template(request: Request, template: str, **values: Any) -> str:
    console = get_console(request)
    session = get_session(request)
    theme = request.cookies.get("theme", "")
    return console.templates.get_template(template).render(
        console=console,
        session=session,
        snapshot=console.sampler.snapshot,
        problem=console.sampler.error,
        problem_since=console.sampler.error_since,
        theme=theme if theme in ("dark", "light") else "",
        path=request.url.path,
        version=__version__,
        flash_messages=lambda: console.flash_messages.pop(session.id, ""),
        has_registry=console.registry is not None,
        cluster_name=console.settings.value("cluster.name")
        or console.sampler.snapshot.cluster_id
        or "cluster",
        **values,
    )


def _templates() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(formatting.FILTERS)
    made.globals.update(now=time.time, asset_url=formatting.asset_url(HERE / "static"))
    return made
