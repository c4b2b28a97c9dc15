"""The command of a service: `--config FILE`, `--set NAME=VALUE`, then run until a signal.

FastAPI and uvicorn take longer to import than `--help` should take, so only a service that really starts
loads them.
"""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from millstream import __version__
from millstream.settings.suggestions import did_you_mean

if TYPE_CHECKING:
    from millstream.http.service_config import ServiceConfig
    from millstream.http.serving import HttpService

log = logging.getLogger(__name__)

Config = TypeVar("Config", bound="ServiceConfig")
# Schemas may be nested and recursive, and so is the code that walks them.
RECURSION_LIMIT = 4000


def run_service(
    name: str,
    argv: list[str],
    config_class: type[Config],
    build: "Callable[[Config, list[int]], HttpService]",
    *,
    description: str,
    epilog: str,
    start_errors: tuple[type[Exception], ...] = (),
) -> int:
    """`millstream NAME`: the exit status. `build` gets the ports that are bound, one for each listener. What
    makes the start impossible (OSError, ValueError, `start_errors`) is one line on standard error."""
    fatal: tuple[type[Exception], ...] = (OSError, ValueError, *start_errors)
    try:
        config = config_class(_properties(name, argv, config_class, description, epilog))
        _start_logging(config)
        sys.setrecursionlimit(RECURSION_LIMIT)
        return run_until_signal(name, config, build)
    except fatal as error:
        from millstream.settings.redaction import hide_url_passwords

        print(hide_url_passwords(f"millstream {name}: {error}"), file=sys.stderr)
        return 1


def run_until_signal(name: str, config: Config, build: "Callable[[Config, list[int]], HttpService]") -> int:
    """The service of a configuration that is made already; the exit status. In a thread that is not the main
    one no signal ends it."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(name, config, build))


async def _serve(name: str, config: Config, build: "Callable[[Config, list[int]], HttpService]") -> int:
    from millstream.http.serving import bind, bound_ports, serve

    sockets = bind(config)
    return await serve(name, config, sockets, build(config, bound_ports(sockets)))


def _properties(
    name: str, argv: list[str], config_class: "type[ServiceConfig]", description: str, epilog: str
) -> dict[str, str]:
    """What a command line gives; --set wins over the file. ValueError for what makes no sense; SystemExit
    after --help and --print-config."""
    from millstream.settings.properties import parse_assignment, read_properties

    parser = argparse.ArgumentParser(prog=f"millstream {name}", description=description, epilog=epilog)
    parser.add_argument("--config", metavar="FILE", help="a .properties file; --set wins over it")
    parser.add_argument("file", nargs="?", help="the same as --config FILE")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="overrides",
        help="one setting; can be repeated",
    )
    parser.add_argument(
        "--print-config",
        action="store_true",
        help="print all settings with their defaults and what they do, and exit",
    )
    parser.add_argument("--version", action="version", version=f"millstream {__version__}")
    arguments = parser.parse_args(argv)
    if arguments.print_config:
        _print_config(config_class)
        raise SystemExit(0)
    path = arguments.config or arguments.file
    try:
        found = read_properties(path) if path else {}
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        if path == arguments.file and not set(path) & {"/", "."}:
            raise ValueError(
                f"there is neither a command '{path}' nor a file of settings with that name; "
                f"see millstream {name} --help"
            ) from None
        raise ValueError(f"cannot read {path}: {reason}") from None
    found.update(parse_assignment(text) for text in arguments.overrides)
    return found


def _print_config(config_class: "type[ServiceConfig]") -> None:
    keys = config_class.keys.items()
    try:
        print(
            "\n".join(f"# {key.documentation}\n{name}={key.default or ''}\n" for name, key in keys),
            flush=True,
        )
    except BrokenPipeError:
        # The reader (`| head`) has gone; without this Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _start_logging(config: "ServiceConfig") -> None:
    logging.basicConfig(
        level=config.log_level,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    for name in config.unknown:
        hint = did_you_mean(name, config.keys)
        log.warning("the setting %s is not known and has no effect%s", name, hint)
