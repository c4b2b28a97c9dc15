from __future__ import annotations

import pytest

from millstream.cluster.zookeeper.connect_string import parse_connect_string


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("localhost", [("localhost", 2181)], ""),
        ("a:1,b:2, c", [("a", 1), ("b", 2), ("c", 2181)], ""),
        ("a:1,b:2/kafka", [("a", 1), ("b", 2)], "/kafka"),
        ("a:1/deep/chroot/", [("a", 1)], "/deep/chroot"),
        ("a:1/", [("a", 1)], ""),
        ("[::1]:2182,[fe80::1]", [("::1", 2182), ("fe80::1", 2181)], ""),
    ],
)
def test_what_can_be_written(text: str, hosts: list[tuple[str, int]], chroot: str) -> None:
    parsed = parse_connect_string(text)
    assert (list(parsed.hosts), parsed.chroot) == (hosts, chroot)
    assert parse_connect_string(str(parsed)) == parsed


@pytest.mark.parametrize(
    "text",
    ["", "/kafka", ",", "a:x", "a:0", "a:65536", "::1", "[::1", "[::1]2181", ":2181", "a//b", "a/../b"],
)
def test_what_cannot(text: str) -> None:
    with pytest.raises(ValueError):
        parse_connect_string(text)
