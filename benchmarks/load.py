"""The load generator: build it when its source is newer than what the cache holds, run it, read its one line
of JSON."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

from apache_kafka import Unavailable, cache_folder
from brokers import Broker, Failed

HERE = Path(__file__).resolve().parent
SOURCES = (HERE / "generator.c", HERE / "generator_batch.h", HERE / "generator_tls.h")
Result = dict[str, float]


def generator(tls: bool = False) -> Path:
    """The compiled program, in the cache folder under a name made of its source's hash."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()[:16]
    program = cache_folder() / f"generator-{'tls-' if tls else ''}{digest}"
    if program.is_file():
        return program
    compiler = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
    if compiler is None:
        raise Unavailable("no C compiler (gcc, cc, clang) to build the load generator with")
    fresh = program.with_suffix(".new")
    words = [compiler, "-O2", "-std=gnu11", "-o", str(fresh), str(SOURCES[0])]
    if tls:
        words += ["-DWITH_TLS", "-lssl", "-lcrypto"]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"the load generator does not compile:\n{done.stderr}")
    fresh.replace(program)
    return program


def run(broker: Broker, mode: str, topic: str, **options: float | bool) -> Result:
    """Put one load on a broker. Options are the generator's own, with _ for -; True is a switch."""
    port = options.pop("port", broker.port)
    command = [str(generator(bool(options.get("tls")))), mode, "--port", str(port), "--topic", topic]
    for name, value in options.items():
        if value is True:
            command.append(f"--{name.replace('_', '-')}")
        elif value is not False:
            command += [f"--{name.replace('_', '-')}", str(value)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise Failed(f"{broker.name}, {mode} {options}: {done.stderr.strip()}")
    answer = json.loads(done.stdout)
    if answer["errors"]:
        raise Failed(
            f"{broker.name}, {mode} {options}: {answer['errors']} errors, first {answer['first_error']}"
        )
    return {name: float(value) for name, value in answer.items() if name != "mode"}


def produce(broker: Broker, topic: str, **options: float | bool) -> Result:
    """Idempotent produce with acks=all."""
    return run(broker, "produce", topic, **options)


def fetch(broker: Broker, topic: str, **options: float | bool) -> Result:
    """Fetch over and over from start to end."""
    return run(broker, "fetch", topic, **options)
