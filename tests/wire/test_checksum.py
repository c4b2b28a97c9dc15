"""The checksum is that of the package crc32c, loaded without the package."""

import subprocess
import sys

import pytest

CASES = {
    "alone": "assert 'crc32c' not in sys.modules and 'importlib.metadata' not in sys.modules",
    "before the package": "import crc32c as package; assert package.crc32c is checksum.crc32c",
}


@pytest.mark.parametrize("after", CASES.values(), ids=CASES.keys())
def test_loaded_without_the_package(after: str) -> None:
    code = f"import sys; from millstream.wire import checksum; {after}; print(checksum.crc32c(b'123456789'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 0xE3069283


def test_where_the_compiled_module_is_not_found_the_package_is_used() -> None:
    code = (
        "import sys, importlib.metadata; from importlib import machinery\n"
        "class Nothing: find_spec = staticmethod(lambda *_: None)\n"
        "machinery.PathFinder = Nothing\n"
        "from millstream.wire import checksum\n"
        "assert 'crc32c' in sys.modules; print(checksum.crc32c(b'123456789'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 0xE3069283
