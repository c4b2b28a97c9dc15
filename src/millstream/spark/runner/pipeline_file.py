"""A user's pipeline: a Python file with a function `pipeline(spark, settings)`.

    def pipeline(spark, settings):
        orders = (
            spark.readStream.format("millstream")
            .options(**settings.kafka)
            .option("subscribe", "orders")
            .load()
        )
        return orders.writeStream.format("millstream").option("topic", "copy").options(**settings.kafka)

It returns what is to run: a writer that is not started (`df.writeStream...`; the runner names it, gives it
its checkpoint folder and starts it), a query that is started already (with a checkpoint of its own), or
several of these in a dict by name or in a list. The function may be called again, after a failure.
"""

import importlib.util
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from millstream.spark.errors import PipelineError, explain

FUNCTION = "pipeline"
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")


class Settings(Mapping[str, str]):
    """What a pipeline is given: `--set name=value` as a mapping, and the addresses as attributes."""

    def __init__(
        self,
        name: str,
        values: Mapping[str, str],
        bootstrap_servers: str,
        registry: str,
        checkpoint: str,
        client: Mapping[str, str] | None = None,
        state: str = "",
    ) -> None:
        self.name = name
        self.bootstrap_servers = bootstrap_servers
        self.registry = registry
        self.checkpoint = checkpoint
        self.state = state or checkpoint  # a folder of this machine, also if the checkpoint is a URI
        self._values = dict(values)
        self._client = dict(client or {})

    @property
    def kafka(self) -> dict[str, str]:
        """Options for format("millstream") that say where the brokers are, and how to reach them: TLS and
        SASL."""
        return {"kafka.bootstrap.servers": self.bootstrap_servers, **self._client}

    def __getitem__(self, name: str) -> str:
        try:
            return self._values[name]
        except KeyError:
            raise PipelineError(f"pipeline {self.name} needs a setting: --set {name}=...") from None

    def get(self, name: str, default: Any = None) -> Any:
        return self._values.get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class App:
    """A loaded file."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        module = _load(self.path)
        self._function: Any = getattr(module, FUNCTION, None)
        if not callable(self._function):
            raise PipelineError(f"{path} has no function {FUNCTION}(spark, settings)")
        self.name = str(getattr(module, "NAME", self.path.stem))
        if not NAME.match(self.name):
            raise PipelineError(
                f"'{self.name}' is not a name for a pipeline: letters, digits, '.', '_' and '-'"
            )

    def build(self, spark: Any, settings: Settings) -> dict[str, Any]:
        """What the pipeline wants to run, by query name."""
        try:
            made = self._function(spark, settings)
        except Exception as error:
            raise PipelineError(self._mistake(error)) from error
        if isinstance(made, Mapping):
            found = {str(name): one for name, one in made.items()}
        elif isinstance(made, list | tuple):
            found = {f"{settings.name}-{number}": one for number, one in enumerate(made)}
        else:
            found = {settings.name: made}
        for name, one in list(found.items()):
            if not NAME.match(name):
                raise PipelineError(f"{self.path}: '{name}' is not a name for a query")
            if hasattr(one, "query") and hasattr(one, "make_topics"):  # a Streams application
                found[name] = one = one.query(spark)
            if not (hasattr(one, "start") or hasattr(one, "awaitTermination")):
                type_name = type(one).__name__
                hint = "; return df.writeStream..." if type_name == "DataFrame" else ""
                raise PipelineError(
                    f"{self.path}: {FUNCTION}() must return writers or started queries, not {type_name}{hint}"
                )
        if not found:
            raise PipelineError(f"{self.path}: {FUNCTION}() returned nothing to run")
        return found

    def _mistake(self, error: Exception) -> str:
        return f"{_where(self.path, error)}{reason(error)}"


def reason(error: BaseException) -> str:
    """One line for an error, whoever raised it: ours as it was said, Spark's without the Java around it."""
    plain = explain(error)
    if plain is not None:
        return plain
    message = str(getattr(error, "desc", None) or error)
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    # Python's own, out of a worker.
    inner = [line for line in lines if re.match(r"^[A-Za-z_.]*(Error|Exception)(: |$)", line)]
    first = inner[-1] if inner else next(iter(lines), "")
    type_name = type(error).__name__
    return (
        first[:400]
        if inner or not first or first.startswith(("[", type_name))
        else f"{type_name}: {first[:400]}"
    )


def _where(path: Path, error: Exception) -> str:
    """`app.py line 7: ` for the last line of the user's file that was under way."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename) == path.resolve()
    ]
    return f"{path} line {lines[-1]}: " if lines else f"{path}: "


def _load(path: Path) -> ModuleType:
    if not path.is_file():
        raise PipelineError(f"there is no file {path}")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # what lies beside it can be imported, as when Python runs the file
    name = f"millstream_app_{re.sub(r'[^A-Za-z0-9_]', '_', path.stem)}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise PipelineError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise PipelineError(f"{path} line {error.lineno}: {error.msg}") from None
    except Exception as error:
        raise PipelineError(f"{_where(path, error)}{reason(error)}") from error
    return module
