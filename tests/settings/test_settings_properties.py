from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.settings.properties import BadProperties, parse_assignment, parse_properties, read_properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("a: b", {"a": "b"}),
        ("a b c", {"a": "b c"}),
        ("a", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("a = : b", {"a": ": b"}),
        ("# a=b\n  ! c=d\n\ne=f", {"e": "f"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=b,\\\n   c,\\\r\n  d", {"a": "b,c,d"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
        ("a=\\u00e9\\t\\n\\q", {"a": "é\t\nq"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=x # no comment", {"a": "x # no comment"}),
        ("a=b\x0bc\x85d", {"a": "b\x0bc\x85d"}),
        # A line with nothing but a backslash does not swallow the comment after it.
        ("\\\n# comment\na=b", {"a": "b"}),
        ("", {}),
    ],
)
def test_parse(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "a\\u=1", "a=\\u-123"])
def test_bad_unicode_escape_names_the_line(text: str) -> None:
    with pytest.raises(BadProperties, match="line 2"):
        parse_properties("# first\n" + text)


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_whatever_is_written_is_read_back(properties: dict[str, str]) -> None:
    def escape(text: str) -> str:
        units = text.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))

    def units(text: str) -> bytes:
        return text.encode("utf-16-be", "surrogatepass")

    text = "\n".join(f"{escape(key)}={escape(value)}" for key, value in properties.items())
    read = {units(key): units(value) for key, value in parse_properties(text).items()}
    assert read == {units(key): units(value) for key, value in properties.items()}


@given(st.text(alphabet="ab=: \t\f\n\r\\#!u04tn"))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_properties(text)
    except BadProperties:
        pass


def test_read_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    for data, value in (
        ("rack=Zürich".encode(), "Zürich"),
        ("\ufeffrack=a".encode(), "a"),
        ("rack=Zürich".encode("latin-1"), "Zürich"),
    ):
        path.write_bytes(data)
        assert read_properties(str(path)) == {"rack": value}
    path.write_text("a=\\u1")
    with pytest.raises(BadProperties, match=r"server\.properties: line 1"):
        read_properties(str(path))


def test_assignment() -> None:
    assert parse_assignment("a = b=c ") == ("a", "b=c")
    assert parse_assignment("a=") == ("a", "")
    for text in ("a", "=b", ""):
        with pytest.raises(BadProperties):
            parse_assignment(text)
