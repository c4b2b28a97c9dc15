"""What the broker wants to know of a certificate: whose it is, for which names, and until when.

Python's `ssl` shows a peer's certificate only in part (and our own not at all), so the few fields are read
from its DER here (RFC 5280). A subject is written as Java writes it (RFC 2253), because that is the text that
`ssl.principal.mapping.rules` and ACLs were made for: last part first, nine short names, any other attribute
by its number and the hex of its bytes.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterator
from typing import NamedTuple

SEQUENCE, SET, OID, BIT_STRING, OCTETS, BOOLEAN, UTC_TIME = 0x30, 0x31, 0x06, 0x03, 0x04, 0x01, 0x17
SUBJECT_ALT_NAME = bytes.fromhex("551d11")

# The names that RFC 2253 has, by the attribute's number; all others are written as numbers.
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
# Types of text. Java reads all of them as UTF-8, and so must we: a user's name is what ACLs were written for.
_TEXTS = (0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E)
_ESCAPED = ',=+<>#;"\\'


class Certificate(NamedTuple):
    subject: str  # in RFC 2253's form
    alt_names: frozenset[str]
    not_after: float  # seconds since 1970


class Element(NamedTuple):
    tag: int
    content: bytes
    whole: bytes  # with tag and length


def read_certificate(der: bytes) -> Certificate:
    """ValueError for bytes that are no certificate."""
    try:
        to_be_signed = next(der_elements(next(der_elements(der)).content)).content
        fields = [field for field in der_elements(to_be_signed) if field.tag != 0xA0]  # without the version
        # serial number, signature, issuer, validity, subject, public key, and in 0xA3 the extensions
        not_after = list(der_elements(fields[3].content))[1]
        extensions = next((field for field in fields if field.tag == 0xA3), None)
        return Certificate(
            distinguished_name(fields[4].whole),
            frozenset(_alt_names(extensions)) if extensions is not None else frozenset(),
            _time(not_after),
        )
    except (IndexError, StopIteration, UnicodeDecodeError, RuntimeError) as error:
        raise ValueError("not a certificate") from error


def distinguished_name(der: bytes) -> str:
    """A name as Java's X500Principal.getName() writes it."""
    sets = [element.content for element in der_elements(next(der_elements(der)).content)]
    return ",".join(
        "+".join(_attribute(pair.content) for pair in der_elements(each)) for each in reversed(sets)
    )


def _attribute(der: bytes) -> str:
    oid, value = der_elements(der)
    number = _oid(oid.content)
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _TEXTS:
        return f"{keyword or number}=#{value.whole.hex()}"
    text = value.content.decode("utf-8", "replace")
    escaped = "".join(f"\\{char}" if char in _ESCAPED else "\\00" if char == "\0" else char for char in text)
    inner = escaped.strip(" \r")
    if not inner:
        return f"{keyword}=" + "".join(f"\\{char}" for char in escaped)
    lead = len(escaped) - len(escaped.lstrip(" \r"))
    tail = len(escaped) - len(escaped.rstrip(" \r"))
    before = "".join(f"\\{char}" for char in escaped[:lead])
    after = "".join(f"\\{char}" for char in escaped[len(escaped) - tail :])
    return f"{keyword}={before}{inner}{after}"


def der_elements(der: bytes) -> Iterator[Element]:
    """The elements of DER (X.690), one after the other. ValueError or IndexError for what is none."""
    at = 0
    while at < len(der):
        start = at
        tag, length = der[at], der[at + 1]
        at += 2
        if length & 0x80:
            count = length & 0x7F
            if not 0 < count <= 4:
                raise ValueError("a length of more than four bytes")
            length = int.from_bytes(der[at : at + count], "big")
            at += count
        if at + length > len(der):
            raise ValueError("a part reaches past the end")
        yield Element(tag, der[at : at + length], der[start : at + length])
        at += length


def _oid(content: bytes) -> str:
    numbers: list[int] = []
    value = 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(str(number) for number in (first, numbers[0] - 40 * first, *numbers[1:]))


def _time(element: Element) -> float:
    text = element.content.decode("ascii")
    if element.tag == UTC_TIME:  # two digits: 50 to 99 are of the last century (RFC 5280)
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=datetime.UTC).timestamp()


def _alt_names(extensions: Element) -> Iterator[str]:
    for extension in der_elements(next(der_elements(extensions.content)).content):
        parts = list(der_elements(extension.content))
        if parts[0].content != SUBJECT_ALT_NAME:
            continue
        for name in der_elements(next(der_elements(parts[-1].content)).content):
            if name.tag == 0x87 and len(name.content) in (4, 16):
                yield f"IP:{ipaddress.ip_address(name.content)}"
            elif name.tag == 0x82:
                yield f"DNS:{name.content.decode('ascii', 'replace').lower()}"
            else:
                yield f"{name.tag:02x}:{name.content.hex()}"
