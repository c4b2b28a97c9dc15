"""A small language to choose records by: `value.status == "CRITICAL" and headers.source != "test"`.

    matches = compile_filter('value.amount > 100 and key startswith "eu-"')
    matches(record)       # any object with topic, partition, offset, timestamp, key, value, headers

What there is to ask about:

    value, key                  their text; value.status, value["odd name"], value.items[0].price go inside
    (JSON, or
                                what the given decoders make of the bytes)
    headers.source              the text of the last header of that name
    timestamp                   milliseconds since 1970; compared with text, that is read as a time:
                                timestamp >= "2026-01-01T00:00Z", timestamp > ago("15m")
    topic, partition, offset

    == != < <= > >=             a number compared with text reads the text as a number, if it is one in,
    contains                value.status in ["A", "B"]; value.tags contains "new"; value contains "some text"
    startswith, endswith, matches (a regular expression, found anywhere) and, or, not, ( )           also &&,
    ||, ! exists(x), len(x), lower(x), upper(x), text(x), number(x), ago("1h"), time("2026-01-01")

What is missing is null; a comparison with it is false, except x == null. Nothing is ever run as Python: the
text is parsed by hand into nodes (syntax.py), which become closures (compiling.py). Regular expressions are
RE2's, so none takes long.
"""

from millstream.filters.compiling import Filter, compile_filter
from millstream.filters.syntax import FilterError
from millstream.filters.times import BadTime, parse_time

__all__ = ["BadTime", "Filter", "FilterError", "compile_filter", "parse_time"]
