"""Numbers as Double.toString and Float.toString of Java 19 and later print them (JDK-4511638)."""

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.serdes.java_text import double_text, float_text, to_float32

DOUBLES = {
    0.0: "0.0",
    1.0: "1.0",
    -2.5: "-2.5",
    0.001: "0.001",
    0.00099: "9.9E-4",
    1e-4: "1.0E-4",
    9999999.0: "9999999.0",
    1e7: "1.0E7",
    123456789.0: "1.23456789E8",
    1e23: "1.0E23",
    2e-5: "2.0E-5",
    5e-324: "4.9E-324",
    sys.float_info.max: "1.7976931348623157E308",
    math.inf: "Infinity",
    -math.inf: "-Infinity",
}
FLOATS = {
    0.1: "0.1",
    1.0: "1.0",
    16777216.0: "1.6777216E7",
    3.4028234663852886e38: "3.4028235E38",
    1.401298464324817e-45: "1.4E-45",
    0.001: "0.001",
    1e-4: "1.0E-4",
    math.inf: "Infinity",
}


@pytest.mark.parametrize(("value", "text"), DOUBLES.items())
def test_doubles(value, text):
    assert double_text(value) == text


@pytest.mark.parametrize(("value", "text"), FLOATS.items())
def test_floats(value, text):
    assert float_text(to_float32(value)) == text


def test_those_that_do_not_equal_themselves():
    assert (double_text(math.nan), float_text(math.nan)) == ("NaN", "NaN")
    assert (double_text(-0.0), float_text(-0.0)) == ("-0.0", "-0.0")


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_is_read_back(value):
    assert float(double_text(value)) == value


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_a_float_is_read_back(value):
    assert to_float32(float(float_text(value))) == value


def test_beyond_the_largest_float():
    assert to_float32(1e300) == math.inf
    assert to_float32(-1e300) == -math.inf
