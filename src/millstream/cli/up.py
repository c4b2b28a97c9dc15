"""`millstream up`: the platform with one command."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli import shared_options
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import print_table

if TYPE_CHECKING:
    from millstream.up.data_folders import DataFolder, Instance
    from millstream.up.services import Service
    from millstream.up.several_brokers import Size
    from millstream.up.supervisor import CannotStart

LAST_LINES = 15
DETACHED_TIMEOUT = 180.0

DataDir = Annotated[
    str,
    typer.Option(
        "--data-dir",
        metavar="FOLDER",
        help="Where data and logs are kept. Without it: MILLSTREAM_DATA_DIR, or ~/.local/share/millstream.",
        show_default=False,
    ),
]


def command(
    data_dir: DataDir = "",
    port_base: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="First of a row of ports, one for each service, instead of the usual ones; 0: any that are "
            "free.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="SERVICE,...", help="Start these services only; may be repeated."),
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="SERVICE,...", help="Start these services as well; may be repeated."),
    ] = None,
    ephemeral: Annotated[
        bool,
        typer.Option("--ephemeral", help="Keep nothing: data in a temporary folder, removed at the end."),
    ] = False,
    detach: Annotated[
        bool, typer.Option("-d", "--detach", help="Go on in the background once all are ready.")
    ] = False,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The address that services listen on.")
    ] = "127.0.0.1",
    brokers: Annotated[
        str,
        typer.Option(
            metavar="N",
            help="So many brokers, with ZooKeeper; auto: one per core. Without it: as many as the folder "
            "has, or one.",
            show_default=False,
        ),
    ] = "",
    zookeepers: Annotated[
        int | None,
        typer.Option(metavar="N", help="1 (the default) or 3 ZooKeepers for several brokers."),
    ] = None,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="TLS, logins and ACLs: brokers speak SASL_SSL, every service is a user of its own.",
        ),
    ] = False,
    plain_http: Annotated[
        bool,
        typer.Option(
            "--plain-http",
            help="With --secure: registry, REST, console, Connect and SQL without TLS, for use behind a "
            "proxy that has it.",
        ),
    ] = False,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SERVICE.NAME=VALUE",
            help="A setting of a service, as broker.num.partitions=3; may be repeated.",
        ),
    ] = None,
    version: shared_options.Version = False,
) -> int:
    """Start broker, registry and the other services together, each in a process of its own.

    A service that ends is started again, after a pause that doubles each time. Ctrl-C stops all of them.
    `millstream status`, `millstream logs` and `millstream down` work from any other terminal, and the profile
    `up` is its cluster: `millstream -p up topics --list`.
    """
    if version:
        return shared_options.show_version()
    from millstream.up.supervisor import CannotStart, choose

    if ephemeral and data_dir:
        raise UsageError("--ephemeral keeps nothing and --data-dir says where: use one of them")
    if port_base is not None and not 0 <= port_base <= 65535:
        raise UsageError(
            f"--port-base {port_base}: ports are numbers from 1 to 65535, or 0 for any free ones"
        )
    began = time.monotonic()
    size = cluster_size(data_dir, ephemeral, brokers, zookeepers)
    if plain_http and not secure:
        raise UsageError("--plain-http is for --secure; without that, the services speak plain HTTP anyway")
    if size.zookeepers:
        from millstream.cli.secure_platform import secured_size

        size = secured_size(size, None if ephemeral else chosen_folder(data_dir), secure)
    from millstream.up.several_brokers import table

    services = table(size)
    try:
        chosen = choose(service_names(only), service_names(also), services)
        settings = settings_by_service(setting or [], chosen)
    except CannotStart as error:
        raise UsageError(str(error)) from None
    for service in chosen:
        require_extra(service.name, service.module)
    if detach:
        return start_in_background(
            data_dir, port_base, only, also, ephemeral, host, setting, secure, brokers, zookeepers, plain_http
        )

    def ready(instance: "Instance") -> None:
        show(instance, time.monotonic() - began)

    return serve(chosen, data_dir, port_base, host, settings, ephemeral, ready, secure, size, not plain_http)


def cluster_size(data_dir: str, ephemeral: bool, brokers: str, zookeepers: int | None) -> "Size":
    from millstream.up.several_brokers import CannotChange, brokers_wanted, decide

    if zookeepers not in (None, 1, 3):
        raise UsageError(f"--zookeepers {zookeepers}: 1, or 3 of which one may fail")
    try:
        count = brokers_wanted(brokers) if brokers else None
    except ValueError as error:
        raise UsageError(str(error)) from None
    try:
        return decide(None if ephemeral else chosen_folder(data_dir), count, zookeepers)
    except CannotChange as error:
        raise CommandFailed(str(error)) from None


def chosen_folder(data_dir: str) -> Path:
    from millstream.up.data_folders import default_data_dir

    return Path(data_dir or default_data_dir())


def serve(
    chosen: "Sequence[Service]",
    data_dir: str,
    port_base: int | None,
    host: str,
    settings: dict[str, dict[str, str]],
    ephemeral: bool,
    ready: "Callable[[Instance], None]",
    secure: bool = False,
    size: "Size | None" = None,
    https: bool = True,
) -> int:
    """Run the services until a signal comes; `ready` is called once, when all of them are."""
    from millstream.up.data_folders import AlreadyRunning, DataFolder, NotRunning, default_data_dir
    from millstream.up.several_brokers import Size, remember, table
    from millstream.up.supervisor import CannotStart, Supervisor

    temporary = tempfile.TemporaryDirectory(prefix="millstream-up-") if ephemeral else None
    home = DataFolder(Path(temporary.name if temporary else data_dir or default_data_dir()))
    try:
        home.lock()
        services = table(size or Size())
        if secure:
            from millstream.cli.secure_platform import secured, with_https

            if https:
                services = with_https(services, home.path)
            chosen = secured([services[service.name] for service in chosen], home.path, own_names(host))
        if size is not None:
            remember(home.path, size)
        supervisor = Supervisor(
            home,
            chosen,
            host=host,
            port_base=port_base,
            settings=settings,
            table=services | {service.name: service for service in chosen},
            ephemeral=ephemeral,
            report=print_event,
        )

        def all_ready(instance: "Instance") -> None:
            ready(instance)
            if size is not None and size.removed:
                forget_removed(home.path, instance, size)

        code = supervisor.run(all_ready)
        print_event("stopped")
        return code
    except CannotStart as error:
        raise CommandFailed(start_failure(error, home)) from None
    except AlreadyRunning:
        try:
            there = home.instance()
        except NotRunning:
            raise CommandFailed(f"another `millstream up` has just begun or ended in {home.path}") from None
        show_running(there, home)
        return 1
    except OSError as error:
        raise CommandFailed(f"cannot use {home.path}: {(error.strerror or str(error)).lower()}") from None
    finally:
        home.unlock()
        if temporary is not None:
            temporary.cleanup()
            remove_own_log()


def forget_removed(folder: Path, instance: "Instance", size: "Size") -> None:
    """The cluster expects brokers that are gone for good no longer. What fails is tried again by the next
    `up`."""
    from millstream.cli.removed_brokers import forget
    from millstream.up.several_brokers import is_broker, remember

    servers = ",".join(one.address for one in instance.services if is_broker(one.name))
    problems = forget(servers, folder, size.removed) if servers else dict.fromkeys(size.removed, "")
    for broker_id, problem in problems.items():
        if problem:
            print_event(f"broker {broker_id} is still registered: {problem}")
    remember(folder, replace(size, removed=tuple(problems)))


def own_names(host: str) -> list[str]:
    """What a certificate must name for clients to find us by."""
    import socket

    return [socket.gethostname()] if host in ("0.0.0.0", "::", "") else [host]  # noqa: S104


def start_failure(error: "CannotStart", home: "DataFolder") -> str:
    """With the last lines of the service that ended, or what to do about a port."""
    if not error.service:
        return f"{error}\n{PORT_CURE}"
    from millstream.up.supervised_service import last_lines

    lines = "\n".join(f"  {line}" for line in last_lines(home.log_of(error.service), LAST_LINES))
    return f"{error}; its last lines:\n{lines}"


PORT_CURE = (
    "Stop what has the port, or choose other ports: millstream up --port-base 19090 (or 0 for any free ones)."
)


def service_names(lists: Sequence[str] | None) -> list[str]:
    return [name.strip() for text in lists or () for name in text.split(",") if name.strip()]


def settings_by_service(items: Sequence[str], chosen: "Sequence[Service]") -> dict[str, dict[str, str]]:
    """`broker.num.partitions=3` for each service."""
    from millstream.up.service_settings import setting_problem

    services = {service.name: service for service in chosen}
    found: dict[str, dict[str, str]] = {}
    for item in items:
        name, equals, value = item.partition("=")
        service, dot, setting = name.strip().partition(".")
        if not equals or not dot or not setting:
            raise UsageError(
                f"--set {item}: write it as SERVICE.NAME=VALUE, for example broker.num.partitions=3"
            )
        if service not in services:
            raise UsageError(
                f"--set {item}: '{service}' is not among the services to start: {', '.join(services)}"
            )
        require_extra(service, services[service].module)
        problem = setting_problem(services[service], setting)
        if problem:
            raise UsageError(f"--set {item}: {problem}")
        found.setdefault(service, {})[setting] = value.strip()
    return found


def require_extra(service: str, module: str) -> None:
    import importlib.util

    if service.startswith("zookeeper"):
        from millstream.cluster.zookeeper.server import CannotRun, class_path, java

        try:
            java()
            class_path()
        except CannotRun as error:
            raise CommandFailed(str(error)) from None
    if module and importlib.util.find_spec(module) is None:
        raise CommandFailed(
            f"the {service} needs packages that are not installed ({module}): pip install "
            f"'millstream[services]', "
            "or start without it (--only)"
        )


# --- what the user sees -------------------------------------------------------------------------------------


def print_event(event: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {event}", file=sys.stderr, flush=True)


def addresses(instance: "Instance") -> None:
    print_table(
        ["Service", "Address", "What"], [[one.name, one.address, one.what] for one in instance.services]
    )


def show(instance: "Instance", seconds: float) -> None:
    kept = "kept nowhere (--ephemeral)" if instance.ephemeral else f"in {instance.data_dir}"
    print(f"Millstream {instance.version}, data {kept}\n")
    addresses(instance)
    which, named = selection(instance)
    print(
        f"\nReady in {seconds:.1f} s. Try `{which}millstream -p up topics --list`; "
        f"`millstream logs -f{named}` shows the logs."
    )
    if os.environ.get(IN_BACKGROUND):
        print(f"{LAST_WORDS} as process {os.getpid()}; `millstream down{named}` stops all.")
    else:
        print("Ctrl-C stops all.")
    sys.stdout.flush()


def selection(instance: "Instance") -> tuple[str, str]:
    """What to write before `millstream -p up`, and after other commands, so that they mean this one: nothing
    if it is the only one."""
    from millstream.up.data_folders import DATA_DIR_VARIABLE, DataFolder, is_only_one

    if is_only_one(DataFolder(Path(instance.data_dir))):
        return "", ""
    return f"{DATA_DIR_VARIABLE}={instance.data_dir} ", f" --data-dir {instance.data_dir}"


def show_running(there: "Instance", home: "DataFolder") -> None:
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(there.started))
    print(
        f"Millstream runs already in {home.path}: process {there.pid}, since {since}. It is left alone; "
        f"`millstream down{selection(there)[1]}` stops it.",
        file=sys.stderr,
    )
    addresses(there)


# --- in the background --------------------------------------------------------------------------------------

# Its value is the file that the process in the background prints to.
IN_BACKGROUND = "MILLSTREAM_UP_IN_BACKGROUND"
# The line by which the process in front knows that it has seen everything.
LAST_WORDS = "Runs in the background"


def remove_own_log() -> None:
    """An `up` that keeps nothing does not keep this either."""
    own = os.environ.get(IN_BACKGROUND)
    if own:
        Path(own).unlink(missing_ok=True)


def start_in_background(
    data_dir: str,
    port_base: int | None,
    only: list[str] | None,
    also: list[str] | None,
    ephemeral: bool,
    host: str,
    setting: list[str] | None,
    secure: bool = False,
    brokers: str = "",
    zookeepers: int | None = None,
    plain_http: bool = False,
) -> int:
    """The same command in a session of its own; what it says goes to us until it is ready, then to
    logs/up.log."""
    from millstream.up.data_folders import DataFolder, default_data_dir

    words = ["--host", host]
    words += [] if port_base is None else ["--port-base", str(port_base)]
    for option, values in (("--only", only), ("--with", also), ("--set", setting)):
        for value in values or ():
            words += [option, value]
    if secure:
        words += ["--secure", *(["--plain-http"] if plain_http else [])]
    words += ["--brokers", brokers] if brokers else []
    words += [] if zookeepers is None else ["--zookeepers", str(zookeepers)]
    if ephemeral:
        words.append("--ephemeral")
        folder = Path(tempfile.gettempdir())
        log = folder / f"millstream-up-{os.getpid()}.log"
    else:
        home = DataFolder(Path(data_dir or default_data_dir()))
        words += ["--data-dir", str(home.path)]
        try:
            home.logs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandFailed(f"cannot use {home.path}: {(error.strerror or str(error)).lower()}") from None
        log = home.log_of("up")
    with log.open("a+b") as out:
        begin = out.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "millstream", "up", *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, IN_BACKGROUND: str(log), "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
        deadline = time.monotonic() + DETACHED_TIMEOUT
        while process.poll() is None and time.monotonic() < deadline:
            if is_complete(output_since(out.fileno(), begin)):
                break
            time.sleep(0.02)
        printed = output_since(out.fileno(), begin)
    if process.returncode is not None:
        print(printed, end="", file=sys.stderr)
        return process.returncode or 1
    print(printed, end="")
    if not is_complete(printed):
        raise CommandFailed(f"not all services are ready after {DETACHED_TIMEOUT:g} s; see millstream status")
    return 0


def is_complete(printed: str) -> bool:
    return LAST_WORDS in printed and printed.endswith("\n")


def output_since(file: int, begin: int) -> str:
    """By the open file: one that keeps nothing has removed its log when it ends."""
    return os.pread(file, 1 << 20, begin).decode(errors="replace")
