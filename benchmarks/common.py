"""How a comparison is made, the same for every benchmark.

Both brokers run side by side, on the same disk, with the same settings; only one has work at a time. Each is
warmed with the very load that is measured (a JVM needs many seconds of it, and gets more while it still
becomes quicker), then they take turns in pairs:
ours first, Kafka first, Kafka first ... so that whatever drifts (disk, clock speed, neighbours) hits both. A
pair yields one ratio; the figure is the median of the ratios, with the smallest and largest beside it. Around
each run the broker's CPU time is read, so that a broker cannot look fast by burning the second core.

Ratios are ours / Kafka. For rates more is better; for times, memory and CPU less is better; the last column
says whether the aim is met.
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import brokers
import load
from apache_kafka import Unavailable, available
from brokers import Broker

RESULTS = Path(__file__).resolve().parent / "results"
OURS, KAFKA = "millstream", "kafka"
Result = load.Result
STILL_QUICKER = 1.05  # a run of the warm-up is that much quicker than all before it
MAX_WARM = 4  # times the length of a warm-up, at most


@dataclass(frozen=True)
class Measure:
    """One figure of a run, and what is hoped of it."""

    key: str
    unit: str
    label: str = ""
    more_is_better: bool = True
    aim: float | None = None  # of the ratio
    limit: float | None = None  # of our own value, in `unit`

    def meets(self, value: float, bound: float) -> bool:
        return value >= bound if self.more_is_better else value <= bound


@dataclass(frozen=True)
class Workload:
    """One load. `prepare` and `clean` are not measured; `run` returns the figures and gets what `prepare`
    returned."""

    name: str
    run: Callable[[Broker, str], Result]
    measures: Sequence[Measure]
    prepare: Callable[[Broker], str] = lambda _broker: ""
    clean: Callable[[Broker, str], None] = lambda _broker, _topic: None
    cpu_aim: float | None = None
    warm: bool = True
    starts_broker: bool = False  # the run starts and stops the broker itself
    only_ours: bool = False


@dataclass(frozen=True)
class Options:
    """What the command line said."""

    quick: bool
    pairs: int
    seconds: float
    warm_seconds: float
    sides: tuple[str, ...]
    folder: Path | None
    only: str
    settings: dict[str, str]  # for both brokers
    gigabytes: float = 5.0  # that a follower has to catch up with

    def wants(self, workload: Workload) -> bool:
        return self.only in workload.name


@dataclass
class Row:
    """One line of the table."""

    workload: str
    unit: str
    ours: float | None
    kafka: float | None
    ratios: list[float]
    cpu_ratio: float | None
    aim: str
    met: bool | None


@dataclass
class Report:
    """Everything a benchmark found: the rows to print and the samples to keep."""

    name: str
    options: Options
    rows: list[Row] = field(default_factory=list)
    samples: dict[str, dict[str, list[Result]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        print(f"  {text}", flush=True)
        self.notes.append(text)


def parse(description: str, arguments: Sequence[str] | None = None) -> Options:
    """The options every benchmark has."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a rough answer: 3 short pairs, short warm-up")
    parser.add_argument("--pairs", type=int, help="pairs of runs per workload (default 7; quick 3)")
    parser.add_argument("--seconds", type=float, help="length of a run (default 4; quick 1.5)")
    parser.add_argument(
        "--warm", type=float, help="seconds of load before the first pair (default 20; quick 5)"
    )
    parser.add_argument("--side", choices=(OURS, KAFKA), help="measure one broker alone")
    parser.add_argument(
        "--dir", type=Path, help="where the data lie (default: the system's temporary folder)"
    )
    parser.add_argument("--only", default="", help="only workloads whose name contains this")
    parser.add_argument(
        "--set", action="append", default=[], metavar="name=value", help="a setting for both brokers"
    )
    parser.add_argument(
        "--gigabytes",
        type=float,
        help="how far behind a follower is that catches up (default 5; quick 0.3)",
    )
    given = parser.parse_args(arguments)
    return Options(
        quick=given.quick,
        pairs=given.pairs or (3 if given.quick else 7),
        seconds=given.seconds or (1.5 if given.quick else 4.0),
        warm_seconds=given.warm if given.warm is not None else (5.0 if given.quick else 20.0),
        sides=(given.side,) if given.side else (OURS, KAFKA),
        folder=given.dir,
        only=given.only,
        settings=dict(pair.split("=", 1) for pair in given.set),
        gigabytes=given.gigabytes or (0.3 if given.quick else 5.0),
    )


@contextlib.contextmanager
def data_folder(options: Options) -> Iterator[Path]:
    """A folder for both brokers' data, gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="millstream-bench-", dir=options.folder))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def both(
    options: Options, report: Report, running: bool = True, make: Callable[..., Broker] = brokers.make
) -> Iterator[list[Broker]]:
    """The brokers asked for, started unless the workloads do that; Kafka is left out, with a note, where it
    cannot be had."""
    with data_folder(options) as folder:
        used: list[Broker] = []
        try:
            for name in options.sides:
                if name == KAFKA and (reason := available()) is not None:
                    report.note(f"Apache Kafka left out: {reason}")
                    continue
                broker = make(name, folder, options.settings)
                used.append(broker)
                if running:
                    brokers.start(broker)
            yield used
        finally:
            for broker in used:
                broker.stop()


def _once(workload: Workload, broker: Broker) -> Result:
    """One run with what it cost the broker."""
    topic = workload.prepare(broker)
    try:
        if workload.starts_broker:
            return workload.run(broker, topic)
        brokers.settle()
        before = _cpu_seconds(broker)
        result = workload.run(broker, topic)
        cpu = _cpu_seconds(broker) - before
        result["cpu_s"] = cpu
        if result.get("requests"):
            result["cpu_us_per_request"] = cpu / result["requests"] * 1e6
        if result.get("bytes"):
            result["cpu_ms_per_mb"] = cpu / (result["bytes"] / 1e6) * 1e3
        result["resident_mb"] = sum(map(brokers.resident_mb, _pids(broker)))
        return result
    finally:
        workload.clean(broker, topic)


def _pids(broker: Broker) -> list[int]:
    """Every process of a cluster; the one of a broker."""
    found: list[int] = getattr(broker, "pids", None) or [broker.pid]
    return found


def _cpu_seconds(broker: Broker) -> float:
    return sum(map(brokers.cpu_seconds, _pids(broker)))


def _warm_up(workload: Workload, used: list[Broker], options: Options) -> None:
    """The load itself, in runs of the usual length, until it has run long enough. Ours has no JIT: a few
    seconds do. Kafka goes on while it becomes quicker from run to run: three JVMs on two cores need several
    times as long as one."""
    for broker in used:
        length = options.warm_seconds if broker.name == KAFKA else min(options.warm_seconds, 3.0)
        spent = best = 0.0
        while True:
            started = time.monotonic()
            result = _once(workload, broker)
            spent += result.get("seconds", time.monotonic() - started)
            rate = result.get("requests_per_s", 0.0)
            if spent >= length and (rate <= best * STILL_QUICKER or spent >= MAX_WARM * length):
                break
            best = max(best, rate)


def compare(report: Report, workloads: Sequence[Workload], used: list[Broker]) -> None:
    """Measure every workload on every broker and add the rows to the report."""
    options = report.options
    for workload in workloads:
        if not options.wants(workload):
            continue
        sides = [broker for broker in used if broker.name == OURS or not workload.only_ours]
        print(f"  {workload.name} ...", end="", flush=True)
        samples: dict[str, list[Result]] = {broker.name: [] for broker in sides}
        try:
            if workload.warm:
                _warm_up(workload, sides, options)
            for pair in range(options.pairs):
                # ABBA: the order turns with every pair.
                for broker in sides if pair % 2 == 0 else sides[::-1]:
                    samples[broker.name].append(_once(workload, broker))
                print(".", end="", flush=True)
        except (brokers.Failed, Unavailable, OSError) as failure:
            print()
            report.note(f"{workload.name} FAILED: {failure}")
            report.rows.append(Row(workload.name, "failed", None, None, [], None, "", False))
            continue
        print()
        report.samples[workload.name] = samples
        report.rows += [
            _row(workload, measure, samples, first)
            for measure, first in zip(
                workload.measures, [True] + [False] * (len(workload.measures) - 1), strict=True
            )
        ]


def _ratios(samples: dict[str, list[Result]], key: str) -> list[float]:
    """One ratio per pair; none where only one broker ran or Kafka's value is zero."""
    pairs = zip(samples.get(OURS, []), samples.get(KAFKA, []), strict=False)
    return [ours[key] / kafka[key] for ours, kafka in pairs if kafka.get(key) and key in ours]


def _middle(results: list[Result], key: str) -> float | None:
    values = [result[key] for result in results if key in result]
    return median(values) if values else None


def _row(workload: Workload, measure: Measure, samples: dict[str, list[Result]], first: bool) -> Row:
    ratios = _ratios(samples, measure.key)
    ours = _middle(samples.get(OURS, []), measure.key)
    cpu_key = "cpu_us_per_request" if _ratios(samples, "cpu_us_per_request") else "cpu_ms_per_mb"
    cpu = median(found) if first and (found := _ratios(samples, cpu_key)) else None
    aims: list[str] = []
    verdicts: list[bool] = []
    sign = ">=" if measure.more_is_better else "<="
    if measure.aim is not None:
        aims.append(f"{sign} {measure.aim:g}")
        if ratios:
            verdicts.append(measure.meets(median(ratios), measure.aim))
    if measure.limit is not None:
        aims.append(f"{sign} {measure.limit:g} {measure.unit}")
        if ours is not None:
            verdicts.append(measure.meets(ours, measure.limit))
    if first and workload.cpu_aim is not None:
        aims.append(f"CPU <= {workload.cpu_aim:g}")
        if cpu is not None:
            verdicts.append(cpu <= workload.cpu_aim)
    return Row(
        workload=f"{workload.name}{f', {measure.label}' if measure.label else ''}",
        unit=measure.unit,
        ours=ours,
        kafka=_middle(samples.get(KAFKA, []), measure.key),
        ratios=ratios,
        cpu_ratio=cpu,
        aim=", ".join(aims),
        met=all(verdicts) if verdicts else None,
    )


# ---- what comes out ----


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(rows: Sequence[Row]) -> str:
    """The rows as aligned text."""
    header = ["workload", "unit", "ours", "kafka", "ratio median (min..max)", "CPU ratio", "aim", ""]
    lines = [header]
    for row in rows:
        ratio = "-"
        if row.ratios:
            ratio = f"{median(row.ratios):.2f} ({min(row.ratios):.2f}..{max(row.ratios):.2f})"
        cpu = "-" if row.cpu_ratio is None else f"{row.cpu_ratio:.2f}"
        verdict = {True: "met", False: "MISSED", None: ""}[row.met]
        lines.append(
            [row.workload, row.unit, _figure(row.ours), _figure(row.kafka), ratio, cpu, row.aim, verdict]
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    text = []
    for line in lines:
        cells = [
            cell.ljust(width) if column in (0, 1, 6, 7) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        text.append("  ".join(cells).rstrip())
    text.insert(1, "-" * max(len(line) for line in text))
    return "\n".join(text)


def machine() -> dict[str, str]:
    """Where the figures were made."""
    model = ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    return {
        "cpu": f"{os.cpu_count()} x {model}",
        "memory": f"{memory:.0f} GB",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load average": " ".join(f"{value:.1f}" for value in os.getloadavg()),
    }


def finish(report: Report) -> None:
    """Print the table and keep everything as JSON."""
    print()
    print(table(report.rows))
    RESULTS.mkdir(exist_ok=True)
    moment = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    target = RESULTS / f"{report.name}-{moment}.json"
    content = {
        "benchmark": report.name,
        "when": moment,
        "machine": machine(),
        "options": {
            "quick": report.options.quick,
            "pairs": report.options.pairs,
            "seconds": report.options.seconds,
            "warm_seconds": report.options.warm_seconds,
            "settings": report.options.settings,
        },
        "rows": [vars(row) for row in report.rows],
        "notes": report.notes,
        "samples": report.samples,
    }
    target.write_text(json.dumps(content, indent=1) + "\n")
    print(
        f"\nsamples kept in {target.relative_to(Path.cwd()) if target.is_relative_to(Path.cwd()) else target}"
    )


def main(name: str, description: str, measure: Callable[[Report], None]) -> int:
    """Run one benchmark from its command line; 0 also when aims are missed: figures are for people to
    judge."""
    report = Report(name, parse(description))
    # Ended from outside: leave through the `finally`s, which stop the brokers and remove their data.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    print(f"{name}: {'; '.join(f'{key} {value}' for key, value in machine().items())}", flush=True)
    try:
        load.generator()
        measure(report)
    except Unavailable as reason:
        print(f"{name}: skipped: {reason}", file=sys.stderr)
        return 0
    finish(report)
    return 0
