"""Prints distinguished names in DER, in hex, one a line: what certificates may hold, and what is hard to
write."""

from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

CN, OU, O = NameOID.COMMON_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.ORGANIZATION_NAME  # noqa: E741
EMAIL, DC, UID = NameOID.EMAIL_ADDRESS, NameOID.DOMAIN_COMPONENT, NameOID.USER_ID
A = x509.NameAttribute


def names() -> list[x509.Name]:
    rdn = x509.RelativeDistinguishedName
    texts = [
        "kafka",
        "a,b",
        "a=b",
        "a+b",
        "<x>",
        "#hash",
        "in#side",
        "semi;colon",
        'quo"te',
        "back\\slash",
        " lead",
        "trail ",
        "  both  ",
        " ",
        "two  inside",
        "tab\tin",
        "Ärger",
        "東京",
        "emoji 😀",
        "nul\0in",
        "\rcr",
        "a/b",
        "*",
        "'",
        "x" * 60,
    ]
    found = [x509.Name([A(CN, text)]) for text in texts]
    found += [
        x509.Name([A(NameOID.COUNTRY_NAME, "DE"), A(NameOID.STATE_OR_PROVINCE_NAME, "BE"),
                   A(NameOID.LOCALITY_NAME, "Berlin"), A(O, "Org, Inc."), A(OU, "Ops"), A(CN, "duke")]),
        x509.Name([A(DC, "com", _ASN1Type.IA5String), A(DC, "example", _ASN1Type.IA5String), A(CN, "duke")]),
        x509.Name([rdn([A(CN, "multi"), A(UID, "42")]), rdn([A(O, "Org")])]),
        x509.Name([rdn([A(O, "Org")]), rdn([A(OU, "one"), A(CN, "two"), A(UID, "three")])]),
        x509.Name([A(CN, "mail"), A(EMAIL, "a@example.com", _ASN1Type.IA5String)]),
        x509.Name([A(NameOID.SERIAL_NUMBER, "123"), A(NameOID.TITLE, "Dr"), A(CN, "serial")]),
        x509.Name([A(NameOID.STREET_ADDRESS, "Main St. 1"), A(CN, "street")]),
        x509.Name([A(x509.ObjectIdentifier("2.999.1.40000.3"), "big"), A(CN, "oid")]),
        x509.Name([A(CN, "latin", _ASN1Type.PrintableString), A(OU, "bmp", _ASN1Type.BMPString)]),
        x509.Name([A(CN, "t61", _ASN1Type.T61String)]),
        x509.Name([]),
    ]  # fmt: skip
    return found


if __name__ == "__main__":
    for name in names():
        print(name.public_bytes().hex())
