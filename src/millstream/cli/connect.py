"""Kafka Connect: run a worker (`distributed`, `standalone`), and ask one by REST.

The connectors of a worker, by its REST API: ours or Apache Kafka's. `--url` names it, or the profile does
(`connect.url`); else it is http://127.0.0.1:8083. A worker that asks who comes gets `--user` (API keys as
well) or `--token`, else the login of the profile; the environment variables MILLSTREAM_USER and
MILLSTREAM_TOKEN keep them off the command line.
"""

import base64
import functools
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Annotated, Any
from urllib.parse import quote

import typer

from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import print_json, print_table, print_yaml
from millstream.cli.profile_store import http_access

STYLES = ("table", "json", "yaml")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The connector.")]
Url = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help="The worker's REST API. Without it: the profile's, or http://127.0.0.1:8083.",
        show_default=False,
    ),
]
Style = Annotated[str, typer.Option("-o", "--output", metavar="STYLE", help="table, json or yaml.")]
File = Annotated[
    str,
    typer.Argument(metavar="FILE", help="The settings: a .properties or .json file; - for standard input."),
]
DEFAULT_URL = "http://127.0.0.1:8083"

User = Annotated[
    str,
    typer.Option(
        metavar="USER:PASSWORD",
        help="A user with the password, or an API key with its secret.",
        envvar="MILLSTREAM_USER",
        show_default=False,
    ),
]
Token = Annotated[
    str,
    typer.Option(metavar="TOKEN", help="A bearer token.", envvar="MILLSTREAM_TOKEN", show_default=False),
]
CaFile = Annotated[
    str,
    typer.Option(
        "--ca-file",
        metavar="FILE",
        help="Certificates to trust (PEM), for https://.",
        envvar="MILLSTREAM_CA_FILE",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Login:
    """How a worker is asked."""

    user: str = ""
    token: str = ""
    ca_file: str = ""

    def headers(self) -> dict[str, str]:
        if self.user and self.token:
            raise UsageError("--user and --token: give one of them")
        if self.token:
            return {"authorization": f"Bearer {self.token}"}
        if not self.user:
            return {}
        if ":" not in self.user:
            raise UsageError("--user needs the password as well: USER:PASSWORD")
        return {"authorization": f"Basic {base64.b64encode(self.user.encode()).decode()}"}


_NO_LOGIN = Login()
_login: ContextVar[Login] = ContextVar("login", default=_NO_LOGIN)


def _with_login(command: Callable[..., int]) -> Callable[..., int]:
    """The command with the three options of a login."""

    @functools.wraps(command)
    def run(*arguments: Any, user: str = "", token: str = "", ca_file: str = "", **options: Any) -> int:
        _login.set(Login(user, token, ca_file))
        return command(*arguments, **options)

    options: Mapping[str, Any] = {"user": User, "token": Token, "ca_file": CaFile}
    run.__annotations__ = {**command.__annotations__, **options}
    own = inspect.signature(command)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default="", annotation=kind)
        for name, kind in options.items()
    ]
    run.__signature__ = own.replace(parameters=[*own.parameters.values(), *added])  # type: ignore[attr-defined]
    return run


def distributed() -> int:
    """Run a worker that keeps connectors, offsets and states in topics: see `connect distributed --help`."""
    from millstream.connect.main import main

    return main(["distributed", "--help"])


def standalone() -> int:
    """Run a worker with the connectors of properties files: see `connect standalone --help`."""
    from millstream.connect.main import main

    return main(["standalone", "--help"])


def list_(url: Url = "", output: Style = "table") -> int:
    """List the connectors with their states."""
    found = _ask("GET", url, "/connectors?expand=status&expand=info")
    rows = [
        (
            name,
            _kind(one),
            _state(one, "connector"),
            _tasks(one),
            (one.get("info") or {}).get("config", {}).get("connector.class", ""),
        )
        for name, one in sorted(found.items())
    ]
    _emit(found, output, ("NAME", "TYPE", "STATE", "TASKS", "CLASS"), rows)
    return 0


def status(name: Name, url: Url = "", output: Style = "table") -> int:
    """Show the states of a connector and its tasks, with what went wrong."""
    found = _ask("GET", url, f"/connectors/{quote(name, safe='')}/status")
    one = found["connector"]
    rows = [("connector", one["state"], one["worker_id"], _first_line(one.get("trace")))]
    rows += [
        (f"task {task['id']}", task["state"], task["worker_id"], _first_line(task.get("trace")))
        for task in found["tasks"]
    ]
    _emit(found, output, ("", "STATE", "WORKER", "ERROR"), rows)
    return 0


def create(
    file: File,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Its name, if the file has none.", show_default=False)
    ] = "",
    url: Url = "",
) -> int:
    """Create a connector."""
    settings = _settings(file)
    chosen = name or settings.get("name", "")
    if not chosen:
        raise UsageError("the connector needs a name: in the file, or --name")
    _ask("POST", url, "/connectors", {"name": chosen, "config": {**settings, "name": chosen}})
    print(f"Created connector {chosen}.")
    return 0


def update(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="The connector, if the file has no name.")],
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="The settings, as for `create`.", show_default=False),
    ] = "",
    url: Url = "",
) -> int:
    """Give a connector other settings, or create it."""
    settings = _settings(file or name)
    chosen = name if file else settings.get("name", "")
    if not chosen:
        raise UsageError("the connector needs a name: in the file, or before it")
    _ask("PUT", url, f"/connectors/{quote(chosen, safe='')}/config", {**settings, "name": chosen})
    print(f"Connector {chosen} has these settings now.")
    return 0


def delete(name: Name, url: Url = "") -> int:
    """Delete a connector. Its offsets stay."""
    _ask("DELETE", url, f"/connectors/{quote(name, safe='')}")
    print(f"Deleted connector {name}.")
    return 0


def pause(name: Name, url: Url = "") -> int:
    """Let a connector rest; its tasks stay."""
    _ask("PUT", url, f"/connectors/{quote(name, safe='')}/pause")
    print(f"Connector {name} is to pause.")
    return 0


def resume(name: Name, url: Url = "") -> int:
    """Let a connector go on that was paused or stopped."""
    _ask("PUT", url, f"/connectors/{quote(name, safe='')}/resume")
    print(f"Connector {name} is to run.")
    return 0


def stop(name: Name, url: Url = "") -> int:
    """Stop a connector: it has no tasks then, and its offsets can be changed."""
    _ask("PUT", url, f"/connectors/{quote(name, safe='')}/stop")
    print(f"Connector {name} is to stop.")
    return 0


def restart(
    name: Name,
    only_failed: Annotated[bool, typer.Option("--only-failed", help="Only what has failed.")] = False,
    url: Url = "",
) -> int:
    """Restart a connector and its tasks."""
    flags = f"includeTasks=true&onlyFailed={'true' if only_failed else 'false'}"
    _ask("POST", url, f"/connectors/{quote(name, safe='')}/restart?{flags}")
    print(f"Connector {name} is to restart.")
    return 0


def plugins(url: Url = "", output: Style = "table") -> int:
    """List what there is: connectors, transforms, predicates, converters."""
    found = _ask("GET", url, "/connector-plugins?connectorsOnly=false")
    _emit(
        found,
        output,
        ("CLASS", "TYPE", "VERSION"),
        [(one["class"], one["type"], one.get("version", "")) for one in found],
    )
    return 0


def validate(file: File, url: Url = "", output: Style = "table") -> int:
    """Say what is wrong with settings, without creating anything."""
    settings = _settings(file)
    kind = settings.get("connector.class", "")
    if not kind:
        raise UsageError("the settings name no connector.class")
    found = _ask("PUT", url, f"/connector-plugins/{quote(kind, safe='')}/config/validate", settings)
    rows = [(one["value"]["name"], error) for one in found["configs"] for error in one["value"]["errors"]]
    if output == "table" and not rows:
        print("Nothing is wrong with these settings.")
        return 0
    _emit(found, output, ("SETTING", "ERROR"), rows)
    if rows:
        raise CommandFailed(f"{len({name for name, _ in rows})} settings are wrong")
    return 0


def offsets(
    name: Name,
    reset: Annotated[
        bool, typer.Option("--reset", help="Back to the beginning; the connector is stopped.")
    ] = False,
    url: Url = "",
    output: Style = "table",
) -> int:
    """Show how far a connector is, or take it back to the beginning."""
    path = f"/connectors/{quote(name, safe='')}/offsets"
    if reset:
        print(_ask("DELETE", url, path)["message"])
        return 0
    found = _ask("GET", url, path)
    rows = [(json.dumps(one["partition"]), json.dumps(one["offset"])) for one in found["offsets"]]
    _emit(found, output, ("PARTITION", "OFFSET"), rows)
    return 0


def topics(name: Name, url: Url = "", output: Style = "table") -> int:
    """List the topics that a connector has used."""
    found = _ask("GET", url, f"/connectors/{quote(name, safe='')}/topics")
    _emit(found, output, ("TOPIC",), [(topic,) for topic in found[name]["topics"]])
    return 0


def preview(
    file: File,
    records: Annotated[int, typer.Option(metavar="N", help="How many records to show.")] = 5,
    url: Url = "",
    output: Style = "json",
) -> int:
    """Show real records after every transform, and what the sink would do. Nothing is written."""
    settings = _settings(file)
    kind = settings.get("connector.class", "")
    if not kind:
        raise UsageError("the settings name no connector.class")
    plugin = quote(kind.rpartition(".")[2], safe="")
    found = _ask("PUT", url, f"/connector-plugins/{plugin}/config/preview?records={records}", settings)
    rows = [
        (str(number), step["transform"].rpartition(".")[2], json.dumps(step["record"]))
        for number, one in enumerate(found["records"])
        for step in [
            {"transform": "read", "record": one.get("record")},
            *one.get("transforms", []),
            *([{"transform": "error", "record": one["error"]}] if "error" in one else []),
        ]
    ]
    rows += [("", "sink", line) for line in found.get("sink", [])]
    _emit(found, output, ("RECORD", "AFTER", ""), rows)
    return 0


def redrive(
    name: Name,
    status: Annotated[bool, typer.Option("--status", help="Only say how far it is.")] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Leave the rest of the dead letters alone.")
    ] = False,
    where: Annotated[
        str, typer.Option("--where", help="Only these, as in console-consumer: 'value.id == 7'.")
    ] = "",
    url: Url = "",
) -> int:
    """Give a sink its dead letters once more."""
    path = f"/connectors/{quote(name, safe='')}/redrive"
    if cancel:
        _ask("DELETE", url, path)
        print(f"Connector {name} reads no dead letters any more.")
        return 0
    body = {"where": where} if where and not status else None
    found = _ask("GET" if status else "POST", url, path, body)
    print(f"Up to {found['dead_letters']} dead letters of {found['topic']} are left for connector {name}.")
    return 0


SUBCOMMANDS: dict[str, Callable[..., int]] = {
    "distributed": distributed,
    "standalone": standalone,
    "list": _with_login(list_),
    "status": _with_login(status),
    "create": _with_login(create),
    "update": _with_login(update),
    "delete": _with_login(delete),
    "pause": _with_login(pause),
    "resume": _with_login(resume),
    "stop": _with_login(stop),
    "restart": _with_login(restart),
    "validate": _with_login(validate),
    "plugins": _with_login(plugins),
    "offsets": _with_login(offsets),
    "topics": _with_login(topics),
    "preview": _with_login(preview),
    "redrive": _with_login(redrive),
}


def _ask(method: str, url: str, path: str, body: Any = None) -> Any:
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    access = http_access("connect", url, DEFAULT_URL)
    url = access.url
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--url {url}: an address begins with http:// or https://")
    data = None if body is None else json.dumps(body).encode()
    headers = {} if body is None else {"content-type": "application/json"}
    login = _login.get()
    if not login.user and not login.token and access.user:
        login = replace(login, user=f"{access.user}:{access.password}")
    headers |= login.headers()
    request = Request(url.rstrip("/") + path, data, headers, method=method)  # noqa: S310 - checked above
    context = _tls_context(url) if login.ca_file else access.context()
    try:
        with urlopen(request, timeout=90, context=context) as answer:  # noqa: S310
            text = answer.read()
    except HTTPError as error:
        if error.code == 401:
            raise CommandFailed(f"{url} wants to know who asks: give --user or --token") from None
        try:
            raise CommandFailed(json.loads(error.read())["message"]) from None
        except (ValueError, KeyError):
            raise CommandFailed(f"{url} answers {error.code} {error.reason}") from None
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        raise CommandFailed(
            f"no Connect worker answers at {url} ({reason}): start one with `millstream connect "
            "distributed`, or give its address with --url"
        ) from None
    return json.loads(text) if text else None


def _tls_context(url: str) -> Any:
    """None for http://."""
    import ssl

    trusted = _login.get().ca_file
    if not url.startswith("https://"):
        return None
    try:
        return ssl.create_default_context(cafile=trusted or None)
    except (OSError, ssl.SSLError) as error:
        raise CommandFailed(f"--ca-file {trusted}: {error.strerror or error}") from None


def _settings(path: str) -> dict[str, str]:
    from millstream.settings.properties import BadProperties, parse_properties

    try:
        text = sys.stdin.read() if path == "-" else open(path, encoding="utf-8").read()  # noqa: SIM115
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}") from None
    if text.lstrip().startswith("{"):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise CommandFailed(f"{path} is not JSON: {error}") from None
        inner = found.get("config", found)
        return {**inner, **({"name": found["name"]} if "name" in found else {})}
    try:
        return parse_properties(text)
    except BadProperties as error:
        raise CommandFailed(f"{path}: {error}") from None


def _kind(one: dict[str, Any]) -> str:
    return str((one.get("info") or one.get("status") or {}).get("type", ""))


def _state(one: dict[str, Any], what: str) -> str:
    return str((one.get("status") or {}).get(what, {}).get("state", ""))


def _tasks(one: dict[str, Any]) -> str:
    states = [task["state"] for task in (one.get("status") or {}).get("tasks", [])]
    running = states.count("RUNNING")
    failed = states.count("FAILED")
    return f"{running}/{len(states)}" + (f", {failed} failed" if failed else "")


def _first_line(trace: str | None) -> str:
    return (trace or "").partition("\n")[0]


def _emit(data: Any, style: str, columns: tuple[str, ...], rows: list[Any]) -> None:
    if style not in STYLES:
        raise UsageError(f"-o {style}: use one of {', '.join(STYLES)}")
    if style == "json":
        print_json(data)
    elif style == "yaml":
        print_yaml(data)
    else:
        print_table(columns, rows)
