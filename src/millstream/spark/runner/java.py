"""Whether there is a Java that Spark can run on, said in one line if not."""

import os
import re
import shutil
import subprocess
from pathlib import Path

MIN_JAVA = 17
HOW = "on Debian or Ubuntu: apt-get install openjdk-17-jre-headless; or set JAVA_HOME to one"


def java_problem() -> str | None:
    """None if all is well."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if program is None or not Path(program).exists():
        where = (
            f"JAVA_HOME is {home}, and there is no bin/java in it" if home else "there is no java on the PATH"
        )
        return f"pipelines run on Spark, which needs Java {MIN_JAVA} or newer: {where} ({HOW})"
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return (
            f"pipelines run on Spark, which needs Java {MIN_JAVA} or newer: {program} does not run ({error})"
        )
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is not None and int(found.group(1)) < MIN_JAVA:
        return (
            f"pipelines run on Spark, which needs Java {MIN_JAVA} or newer: "
            f"{program} is Java {found.group(1)} ({HOW})"
        )
    return None
