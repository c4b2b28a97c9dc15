"""The command line against whatever broker the tests are for."""

import json
import re
import subprocess
import sys
from collections.abc import Callable

MILLSTREAM = [sys.executable, "-m", "millstream"]


def millstream(*words: str, stdin: str = "") -> str:
    done = subprocess.run([*MILLSTREAM, *words], input=stdin, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def test_perf(bootstrap: str, new_topic: Callable[..., str]) -> None:
    to = ("--bootstrap-server", bootstrap, "--topic", new_topic(partitions=3))
    words = ["--num-records", "20000", "--record-size", "100", "--producer-props"]
    for settings in (["acks=all"], ["acks=1", "compression.type=lz4"], ["linger.ms=0", "batch.size=2000"]):
        printed = millstream("perf", "produce", *to, *words, *settings)
        assert printed.splitlines()[-1].startswith("20000 records sent, ")
    facts = json.loads(millstream("perf", "consume", *to, "--num-records", "60000", "-o", "json"))
    assert facts["records"] == 60000
    printed = millstream("perf", "produce", *to, *words[:4], "--throughput", "40000")
    assert printed.splitlines()[-1].startswith("20000 records sent, ")
    group = ["--group", f"{to[3]}-group", "--num-records", "80000", "-o", "json"]
    assert json.loads(millstream("perf", "consume", *to, *group))["records"] == 80000


def test_perf_end_to_end(bootstrap: str, new_topic: Callable[..., str]) -> None:
    to = ("--bootstrap-server", bootstrap, "--topic", new_topic())
    printed = millstream("perf", "end-to-end", *to, "--num-records", "50")
    assert re.search(r"^Avg latency: [\d.]+ ms\nPercentiles: ", printed, re.MULTILINE)


def test_consumer_by_expression_and_time(bootstrap: str, new_topic: Callable[..., str]) -> None:
    to = ("--bootstrap-server", bootstrap, "--topic", new_topic(partitions=2))
    lines = "".join(json.dumps({"n": number}) + "\n" for number in range(10))
    millstream("console-producer", *to, stdin=lines)
    words = ["--from-time", "-1h", "--timeout-ms", "3000", "--where", "value.n >= 8"]
    found = {json.loads(line)["n"] for line in millstream("console-consumer", *to, *words).splitlines()}
    assert found == {8, 9}
    assert millstream("console-consumer", *to, "--from-time", "now", "--timeout-ms", "500") == ""
