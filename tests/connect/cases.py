"""The cases that Kafka's classes are asked about: some written by hand, the rest by a seeded generator.

Values carry their Java type, as `Recorder.java` reads them: {"i8": 1}, {"f32": "1.5"}, {"struct": {...}}.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from typing import Any

Case = dict[str, Any]
PACKAGE = "org.apache.kafka.connect.transforms."
DATA = "org.apache.kafka.connect.data."


def field(name: str, schema: dict[str, Any], **attributes: Any) -> dict[str, Any]:
    return schema | attributes | {"field": name}


def simple(kind: str, **attributes: Any) -> dict[str, Any]:
    return {"type": kind, "optional": False} | attributes


def struct(*fields: dict[str, Any], **attributes: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields), "optional": False} | attributes


DATE = simple("int32", name=f"{DATA}Date", version=1)
TIME = simple("int32", name=f"{DATA}Time", version=1)
TIMESTAMP = simple("int64", name=f"{DATA}Timestamp", version=1)
DECIMAL = simple("bytes", name=f"{DATA}Decimal", version=1, parameters={"scale": "2"})

# Values of each type, with the awkward ones first.
VALUES: dict[str, list[Any]] = {
    "int8": [{"i8": n} for n in (0, 1, -1, 127, -128, 44)],
    "int16": [{"i16": n} for n in (0, 300, -300, 32767, -32768)],
    "int32": [{"i32": n} for n in (0, 1, 300, 70000, 2147483647, -2147483648)],
    "int64": [{"i64": n} for n in (0, 1, 300, 1 << 40, 1604000000123, 9223372036854775807, -1500)],
    "float": [{"f32": t} for t in ("0.0", "1.5", "-1.5", "300.7", "1.0E10", "3.4E38", "NaN", "0.1")],
    "double": [
        {"f64": t}
        for t in ("0.0", "1.5", "300.7", "1.5E10", "1.0E7", "1.0E-4", "-0.0", "1.0E300", "Infinity", "NaN")
    ],
    "boolean": [{"bool": True}, {"bool": False}],
    "string": [
        {"str": t}
        for t in (
            "",
            "a",
            "42",
            "-7",
            "1.5",
            "TRUE",
            "false",
            "128",
            "99999999999",
            "1e3",
            "NaN",
            "naïve \u20ac",
            ' "q" ',
        )
    ],
    "bytes": [{"bytes": base64.b64encode(b).decode()} for b in (b"", b"abc", bytes(range(8)))],
}
LOGICAL = {
    "Date": (DATE, [{"date": d * 86_400_000} for d in (0, 1, 18000, -1)]),
    "Time": (TIME, [{"date": m} for m in (0, 1, 3_600_000, 86_399_999)]),
    "Timestamp": (TIMESTAMP, [{"date": m} for m in (0, 1604000000123, 1604016000000, -1500, 1500)]),
    "Decimal": (DECIMAL, [{"dec": t} for t in ("0.00", "12.30", "-1.05", "12345678901234567890.12")]),
}
PLAIN = ["int64", "double", "boolean", "string", "bytes"]
"""What values without a schema are."""
CASTS = ["int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string"]


def sv(schema: Any, value: Any) -> Case:
    return {"schema": schema, "value": value}


def record(value: Case | None = None, key: Case | None = None, **more: Any) -> Case:
    return {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp": 1604000000123,
        "key": key or sv(None, None),
        "value": value or sv(None, None),
        "headers": [],
    } | more


def transform(name: str, config: dict[str, str], one: Case) -> Case:
    return {"do": "transform", "class": PACKAGE + name, "config": config, "record": one}


def plain_map(**fields: Any) -> Case:
    return sv(None, {"map": [[{"str": name}, value] for name, value in fields.items()]})


class Generator:
    """Random schemas with values that fit them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def schema_and_value(self, depth: int = 2) -> tuple[dict[str, Any], Any]:
        kinds = [*VALUES, *LOGICAL, *(["struct", "array", "map"] if depth else [])]
        kind = self.random.choice(kinds)
        if kind in VALUES:
            schema, value = simple(kind), self.random.choice(VALUES[kind])
        elif kind in LOGICAL:
            schema, values = LOGICAL[kind]
            value = self.random.choice(values)
        elif kind == "struct":
            return self.struct(depth - 1)
        elif kind == "array":
            element = self.random.choice(list(VALUES))
            schema = {"type": "array", "items": simple(element), "optional": False}
            value = {"list": self.random.sample(VALUES[element], 2)}
        else:
            element = self.random.choice(list(VALUES))
            schema = {"type": "map", "keys": simple("string"), "values": simple(element), "optional": False}
            value = {"map": [[{"str": "k"}, self.random.choice(VALUES[element])]]}
        if self.random.random() < 0.3:
            schema = schema | {"optional": True}
            if self.random.random() < 0.4:
                value = None
        return schema, value

    def struct(self, depth: int = 1) -> tuple[dict[str, Any], Any]:
        fields, values = [], {}
        for name in self.random.sample(
            ["id", "name", "at", "amount", "note", "a.b"], self.random.randint(1, 5)
        ):
            schema, value = self.schema_and_value(depth)
            fields.append(field(name, schema))
            values[name] = value
        named = {"name": "Order", "version": 2, "doc": "an order"} if self.random.random() < 0.3 else {}
        return struct(*fields, **named), {"struct": values}

    def plain(self, depth: int = 2) -> Any:
        kinds = [*PLAIN, *(["map", "list"] if depth else []), "null", "date", "dec"]
        kind = self.random.choice(kinds)
        if kind in VALUES:
            return self.random.choice(VALUES[kind])
        if kind == "map":
            names = self.random.sample(["id", "name", "at", "amount"], self.random.randint(0, 3))
            return {"map": [[{"str": name}, self.plain(depth - 1)] for name in names]}
        if kind == "list":
            return {"list": [self.plain(0) for _ in range(self.random.randint(0, 3))]}
        return {"null": None, "date": {"date": 1604000000123}, "dec": {"dec": "1.50"}}[kind]


_DEFAULTS: dict[str, Any] = {
    "int8": 7,
    "int16": -300,
    "int32": 70000,
    "int64": 1604000000123,
    "float": 1.5,
    "double": -0.25,
    "boolean": True,
    "string": "d",
    "bytes": "YWJj",
}


class WithDefaults(Generator):
    """Many of its fields have a default, and many of those are null."""

    def schema_and_value(self, depth: int = 2) -> tuple[dict[str, Any], Any]:
        schema, value = super().schema_and_value(depth)
        if "name" not in schema and schema["type"] in _DEFAULTS and self.random.random() < 0.5:
            schema = schema | {"default": _DEFAULTS[schema["type"]]}
            if schema["optional"] and self.random.random() < 0.6:
                value = None
        return schema, value


def casts() -> Iterator[Case]:
    for kind, values in VALUES.items():
        for target in CASTS:
            for value in values:
                schema = struct(field("f", simple(kind)), field("g", simple("int32", optional=True)))
                content = {"struct": {"f": value, "g": None}}
                yield transform("Cast$Value", {"spec": f"f:{target}"}, record(sv(schema, content)))
            yield transform("Cast$Key", {"spec": target}, record(key=sv(simple(kind), values[-1])))
    for schema, values in LOGICAL.values():
        for target in CASTS:
            for value in values:
                yield transform("Cast$Value", {"spec": target}, record(sv(schema, value)))
    for kind in PLAIN:
        for target in CASTS:
            for value in VALUES[kind][:4]:
                yield transform(
                    "Cast$Value", {"spec": f"f:{target}"}, record(plain_map(f=value, g={"str": "x"}))
                )
    with_default = struct(field("f", simple("string", optional=True, default="12")))
    for replace in ("true", "false"):
        config = {"spec": "f:int16", "replace.null.with.default": replace}
        yield transform("Cast$Value", config, record(sv(with_default, {"struct": {"f": None}})))
    for spec in (
        "",
        "f:int8,int16",
        "f:integer",
        "f:bytes",
        "f:struct",
        "int8",
        "a:b:c",
        "f:int8,missing:string",
    ):
        yield transform("Cast$Value", {"spec": spec}, record(sv(simple("int32"), {"i32": 5})))
        yield transform("Cast$Value", {"spec": spec}, record(plain_map(f={"i64": 5})))
    yield transform("Cast$Value", {}, record(sv(simple("int32"), {"i32": 5})))


def timestamps() -> Iterator[Case]:
    patterns = [
        "yyyy-MM-dd",
        "yyyy-MM-dd HH:mm:ss.SSS",
        "yyyyMMddHHmmss",
        "EEE, d MMM yyyy HH:mm:ss Z",
        "hh:mm a",
        "yy/M/d",
    ]
    patterns += ["D", "yyyy-MM-dd'T'HH:mm:ssX", "''yyyy''", "w W u F k K", "bad pattern", "yyyy-'unfinished"]
    moments = [
        "2020-10-29",
        "2020-13-45",
        "20201029193320",
        "Thu, 29 Oct 2020 19:33:20 +0000",
        "07:33 PM",
        "",
        "x",
    ]
    moments += ["2020-10-29 19:33:20.123", "2020-10-29T19:33:20Z", "2020-10-29T19:33:20+02", "99999"]
    for target in ("string", "unix", "Date", "Time", "Timestamp", "nonsense"):
        for pattern in patterns:
            config = {"target.type": target, "format": pattern}
            for schema, value in ((TIMESTAMP, {"date": 1604000000123}), (simple("int64"), {"i64": -1500})):
                yield transform("TimestampConverter$Value", config, record(sv(schema, value)))
        for pattern in patterns[:8]:
            for text in moments:
                config = {"target.type": target, "format": pattern}
                if "-" in text and pattern == "yyyyMMddHHmmss":
                    continue  # Java reads a minus where numbers touch
                if target in ("unix", "Timestamp") and "yy/" not in pattern:
                    yield transform(
                        "TimestampConverter$Value", config, record(sv(simple("string"), {"str": text}))
                    )
        for precision in ("seconds", "milliseconds", "microseconds", "nanoseconds", "hours"):
            config = {"target.type": target, "unix.precision": precision, "format": "yyyy", "field": "at"}
            for number in (0, -1500, 1604000000123, 1604000000123456, -1):
                one = struct(field("at", simple("int64", optional=True)), field("b", simple("string")))
                value = {"struct": {"at": {"i64": number}, "b": {"str": "x"}}}
                yield transform("TimestampConverter$Value", config, record(sv(one, value)))
                yield transform("TimestampConverter$Value", config, record(plain_map(at={"i64": number})))
            yield transform(
                "TimestampConverter$Key", config, record(key=plain_map(at={"date": 1604000000123}))
            )
            yield transform("TimestampConverter$Value", config, record(plain_map(b={"i64": 1})))
    for schema, values in LOGICAL.values():
        for target in ("string", "unix", "Date", "Time", "Timestamp"):
            config = {"target.type": target, "format": "yyyy-MM-dd HH:mm:ss.SSS"}
            for value in [*values, None]:
                yield transform(
                    "TimestampConverter$Value", config, record(sv(schema | {"optional": True}, value))
                )
    for form in ("${topic}-${timestamp}", "x-${timestamp}", "${topic}", "a$b"):
        for pattern in ("yyyyMMdd", "yyyy", "HH"):
            config = {"topic.format": form, "timestamp.format": pattern}
            yield transform("TimestampRouter", config, record())
            yield transform("TimestampRouter", config, record(topic="a$1\\b"))
    yield transform("TimestampRouter", {}, record())


def zones() -> Iterator[Case]:
    """What one form of a zone takes, the others do not; hours may run over."""
    texts = ["2020-02-29T23:59:59.999+02:00", "2020-02-29T23:59:59.999Z", "2020-02-29T23:59:59.5+0100", "UTC"]
    texts += ["GMT", "0705", "2020-09"]
    for pattern in (
        "yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
        "yyyy-MM-dd'T'HH:mm:ss.SSSZ",
        "z",
        "XX",
        "kk",
        "K",
        "HHmm",
    ):
        for text in texts:
            config = {"target.type": "unix", "format": pattern}
            yield transform("TimestampConverter$Value", config, record(sv(simple("string"), {"str": text})))


def by_hand() -> Iterator[Case]:
    nested = struct(
        field("id", simple("int32")),
        field(
            "in",
            struct(field("x.y", simple("string", optional=True, default="d")), field("n", simple("int64"))),
        ),
    )
    value = {"struct": {"id": {"i32": 1}, "in": {"struct": {"x.y": None, "n": {"i64": 2}}}}}
    deep = plain_map(id={"i64": 1}, a={"map": [[{"str": "b"}, {"map": [[{"str": "c.d"}, {"str": "!"}]]}]]})
    for path in (
        "id",
        "in.n",
        "in",
        "in.`x.y`",
        "in.x.y",
        "a.b",
        "a.b.`c.d`",
        "a.b.c",
        "",
        "a.",
        ".a",
        "`a",
        "`a`.b",
        "a.`b\\`.c`",
        "none.n",
    ):
        for version in ("V1", "V2", "v2", "V3"):
            for default in ("true", "false"):
                config = {
                    "field": path,
                    "field.syntax.version": version,
                    "replace.null.with.default": default,
                }
                yield transform("ExtractField$Value", config, record(sv(nested, value)))
                yield transform("ExtractField$Value", config, record(deep))
    for delimiter in (".", "_", ""):
        yield transform("Flatten$Value", {"delimiter": delimiter}, record(sv(nested, value)))
        yield transform("Flatten$Value", {"delimiter": delimiter}, record(deep))
    defaulted = struct(
        field(
            "s",
            struct(field("x", simple("int32")), field("y", simple("string", default="why"))),
            optional=True,
        )
    )
    for inside in (None, {"struct": {"x": {"i32": 1}, "y": {"str": "z"}}}):
        yield transform("Flatten$Value", {}, record(sv(defaulted, {"struct": {"s": inside}})))
    for regex, replacement in (
        ("(.*)", "copy-$1"),
        ("ord(.*)", "x$1"),
        ("order", "y"),
        ("o(r)(d).*", "$2$1"),
        ("(?<first>o).*", "${first}z"),
        ("orders", "a\\$b"),
        (".*", "$0-$0"),
        ("(", "x"),
        ("[a-z]+", "$3"),
        ("(o)rders", "$12"),
    ):
        yield transform("RegexRouter", {"regex": regex, "replacement": replacement}, record())
    for literal in ("1", "text", "[1,2]", "null", "", "1.5", "true", '{"a":1}', "2020-10-29"):
        yield transform("InsertHeader", {"header": "h", "value.literal": literal}, record())
    headers = [{"name": n, "schema": simple("string"), "value": {"str": n}} for n in ("a", "b", "a")]
    for names in ("a", "b", "a,b", "c", "", "a,,b", "a,a"):
        yield transform("DropHeaders", {"headers": names}, record(headers=headers))
    for name in ("a", "c", ""):
        yield {
            "do": "predicate",
            "class": f"{PACKAGE}predicates.HasHeaderKey",
            "config": {"name": name},
            "record": record(headers=headers),
        }
    for pattern in ("orders", "ord.*", "rder", "", "(", "a|orders"):
        yield {
            "do": "predicate",
            "class": f"{PACKAGE}predicates.TopicNameMatches",
            "config": {"pattern": pattern},
            "record": record(),
        }
    for one in (sv(None, None), sv(simple("int32", optional=True), None), sv(None, {"i64": 1})):
        yield {
            "do": "predicate",
            "class": f"{PACKAGE}predicates.RecordIsTombstone",
            "config": {},
            "record": record(one),
        }
        yield transform("Filter", {}, record(one))


def insert_configs(maker: random.Random) -> dict[str, str]:
    config = {}
    for what in ("topic", "partition", "offset", "timestamp", "static"):
        if maker.random() < 0.5:
            config[f"{what}.field"] = maker.choice(["new", what, f"{what}!", f"{what}?", "id"])
    if maker.random() < 0.7:
        config["static.value"] = "fixed"
    return config


def at_random(seed: int, count: int, of: type[Generator] = Generator) -> Iterator[Case]:
    generator = of(seed)
    maker = generator.random
    names = ["id", "name", "at", "amount", "note", "a.b", "none"]

    def some() -> str:
        return ",".join(maker.sample(names, maker.randint(1, 3)))

    configs: dict[str, Any] = {
        "ExtractField": lambda: {"field": maker.choice(names)},
        "Flatten": lambda: {"delimiter": maker.choice([".", "_"])},
        "HoistField": lambda: {"field": "all"},
        "InsertField": lambda: insert_configs(maker),
        "ReplaceField": lambda: maker.choice(
            [
                {"exclude": some()},
                {"include": some()},
                {"renames": "id:key,at:when"},
                {"renames": "id"},
                {"include": some(), "renames": "id:name2"},
                {"exclude": "id", "include": "id,name"},
            ]
        ),
        "MaskField": lambda: (
            {"fields": some()} | maker.choice([{}, {"replacement": "42"}, {"replacement": "x"}])
        ),
        "HeaderFrom": lambda: {
            "fields": maker.choice(["id", "id,name", "none"]),
            "headers": maker.choice(["h", "h,i"]),
            "operation": maker.choice(["move", "copy"]),
        },
        "SetSchemaMetadata": lambda: maker.choice(
            [{"schema.name": "New"}, {"schema.version": "7"}, {"schema.name": "N", "schema.version": "x"}, {}]
        ),
        "Cast": lambda: {"spec": maker.choice(["id:string", "id:int32,at:int64", "amount:float64"])},
        "ValueToKey": lambda: {"fields": some()},
    }
    for _ in range(count):
        name = maker.choice(list(configs))
        config = configs[name]()
        if maker.random() < (0.2 if of is Generator else 0.6):
            config["replace.null.with.default"] = maker.choice(["false", "true"])
        if maker.random() < 0.55:
            one = sv(*generator.struct())
        elif maker.random() < 0.5:
            one = sv(None, generator.plain())
        else:
            one = sv(*generator.schema_and_value())
        target = "" if name == "ValueToKey" else maker.choice(["$Value", "$Value", "$Key"])
        whole = record(key=one) if target == "$Key" else record(one)
        if maker.random() < 0.1:
            whole["timestamp"] = None
        yield transform(name + target, config, whole)


def chosen_fields() -> Iterator[Case]:
    """Every type of a field, null and not, through each transform that looks into fields."""
    every: list[tuple[dict[str, Any], Any]] = [
        *((simple(kind), value) for kind, held in VALUES.items() for value in held[:3]),
        *((schema, value) for schema, held in LOGICAL.values() for value in held[:2]),
        ({"type": "array", "items": simple("int32"), "optional": False}, {"list": [{"i32": 1}]}),
        (
            {"type": "map", "keys": simple("string"), "values": simple("int32"), "optional": False},
            {"map": [[{"str": "k"}, {"i32": 1}]]},
        ),
        (struct(field("x", simple("int32"))), {"struct": {"x": {"i32": 1}}}),
    ]
    transforms = (
        ("MaskField$Value", {"fields": "f"}),
        ("MaskField$Value", {"fields": "f", "replacement": "7"}),
        ("MaskField$Value", {"fields": "f", "replacement": "1.5"}),
        ("MaskField$Value", {"fields": "f", "replacement": "word"}),
        ("HeaderFrom$Value", {"fields": "f", "headers": "h", "operation": "move"}),
        ("HeaderFrom$Value", {"fields": "f", "headers": "h", "operation": "copy"}),
        ("ExtractField$Value", {"field": "f"}),
        ("ValueToKey", {"fields": "f"}),
        ("ReplaceField$Value", {"renames": "f:g"}),
        ("Flatten$Value", {}),
        ("HoistField$Value", {"field": "all"}),
    )
    for schema, value in every:
        for name, config in transforms:
            for optional, held in ((False, value), (True, value), (True, None)):
                whole = struct(field("f", schema | {"optional": optional}), field("g2", simple("string")))
                content = {"struct": {"f": held, "g2": {"str": "x"}}}
                yield transform(name, config, record(sv(whole, content)))
            if "name" not in schema and schema["type"] in PLAIN:
                yield transform(name, config, record(plain_map(f=value, g2={"str": "x"})))
                yield transform(name, config, record(plain_map(f=None)))


# ruff: noqa: E501
TEXTS = [
    "", " ", "null", "true", "false", " true ", "True", "1", "-1", "+1", "127", "128", "-129", "32768", "2147483648",
    "9223372036854775807", "9223372036854775808", "1.0", "1.5", "-0.5", "1e3", "1.5e400", "1e-400", "0.1", "1.", ".5",
    "1_000", "0x10", "NaN", "abc", "a,b", "1,2", "1:2", "[]", "[1]", "[1,2,3]", "[1,300]", "[1,1.5]", "[1,\"a\"]", "[1,null]",
    "[null]", "[[1],[2]]", "[1,,2]", "[1", "1]", "[true,false]", "[a]", '["a","b"]', '["a\\"b"]', "{}", '{"a":1}', '{"a":1,"b":300}',
    '{"a":null}', '{"a":1,}', '{"a":"x","b":2}', "{1:2}", "{a:1}", '{"a":[1,2]}', '{"a":{"b":1}}', '{"a" : 1 , "b" : 2 }',
    "2020-10-29", "2020-13-01", "14:34:54.346Z", "2019-08-23T14:34:54.346Z", '"2020-10-29"', '["2020-10-29"]', '"quoted"',
    "[ 1 , 2 ]", "a\\:b", "\\", "a\\", "{", "}", ":", ",", '"', '""', "[\"\"]", "1 2", " 1", "1 ", "\u20ac", "12345678901234567890.5",
    "1604000000123", "-9223372036854775809", "100000000000000000000", "3.4028236e38", "1e39", "00012", "12:30", "{\"a\":true}",
]  # fmt: skip


def values() -> Iterator[Case]:
    for text in TEXTS:
        yield {"do": "parse", "text": text}
        data = base64.b64encode(text.encode()).decode()
        yield {
            "do": "to_header",
            "class": "org.apache.kafka.connect.storage.SimpleHeaderConverter",
            "data": data,
        }
    generator = Generator(3)
    for _ in range(200):
        schema, value = generator.schema_and_value()
        yield {"do": "text", "schema": schema, "value": value}


def converters() -> Iterator[Case]:
    json = "org.apache.kafka.connect.json.JsonConverter"
    generator = Generator(5)
    for turn in range(400):
        schema, value = generator.schema_and_value()
        config = {
            "schemas.enable": "true" if turn % 3 else "false",
            "decimal.format": "numeric" if turn % 5 == 0 else "BASE64",
        }
        yield {"do": "from_connect", "class": json, "config": config, "schema": schema, "value": value}
        yield {
            "do": "from_connect",
            "class": json,
            "config": config,
            "schema": None,
            "value": generator.plain(),
        }
    others = WithDefaults(17)
    for turn in range(300):
        schema, value = others.struct()
        config = {
            "schemas.enable": "true" if turn % 2 else "false",
            "decimal.format": "NUMERIC" if turn % 3 == 0 else "base64",
            "replace.null.with.default": "false" if turn % 5 < 2 else "true",
        }
        yield {"do": "from_connect", "class": json, "config": config, "schema": schema, "value": value}
    for encoding in ("UTF-16", "ISO-8859-1", "US-ASCII", "UTF-16LE"):
        config = {"converter.encoding": encoding}
        text = "org.apache.kafka.connect.storage.StringConverter"
        for value in VALUES["string"]:
            yield {
                "do": "from_connect",
                "class": text,
                "config": config,
                "schema": simple("string"),
                "value": value,
            }
        for data in (b"", b"abc", b"\xff\xfea\x00", "\u20ac".encode("utf-16"), b"\xe9"):
            yield {
                "do": "to_connect",
                "class": text,
                "config": config,
                "data": base64.b64encode(data).decode(),
            }
    with_default = simple("string", optional=True, default="d")
    for replace in ("true", "false"):
        config = {"schemas.enable": "true", "replace.null.with.default": replace}
        yield {"do": "from_connect", "class": json, "config": config, "schema": with_default, "value": None}
    schemas = [
        *(f'{{"type":"{kind}"}}' for kind in (*VALUES, "float32", "struct", "array", "map", "x")),
        "null",
        "{}",
        "1",
    ]
    schemas += [
        '{"type":"int32","optional":true}',
        '{"type":"string","default":"d"}',
        '{"type":"int8","default":"x"}',
    ]
    schemas += [
        '{"type":"struct","fields":[{"type":"int32","field":"a"},{"type":"string","optional":true,"field":"b"}]}'
    ]
    schemas += [
        '{"type":"struct","fields":[{"type":"int32"}]}',
        '{"type":"struct","fields":{}}',
        '{"type":"array","items":null}',
    ]
    schemas += [
        '{"type":"array","items":{"type":"int64"}}',
        '{"type":"map","keys":{"type":"string"},"values":{"type":"int32"}}',
    ]
    schemas += [
        '{"type":"map","keys":{"type":"int32"},"values":{"type":"string"}}',
        '{"type":"map","keys":{"type":"string"}}',
    ]
    for name in ("Date", "Time", "Timestamp", "Decimal"):
        kind = {"Timestamp": "int64", "Decimal": "bytes"}.get(name, "int32")
        more = ',"parameters":{"scale":"2"}' if name == "Decimal" else ""
        schemas.append(f'{{"type":"{kind}","name":"{DATA}{name}","version":1{more}}}')
    payloads = [
        "null",
        "1",
        "300",
        "-1",
        "1.5",
        "1e400",
        "9223372036854775808",
        '"a"',
        '"YWJj"',
        '"!!"',
        "true",
        "[]",
        "{}",
    ]
    payloads += [
        "[1,2]",
        '["a"]',
        '{"a":1}',
        '{"a":1,"b":"x","c":2}',
        '{"b":"x"}',
        '[[1,"x"]]',
        "[[1]]",
        "86400001",
    ]
    for schema_text in schemas:
        for payload in payloads:
            document = f'{{"schema":{schema_text},"payload":{payload}}}'
            yield {
                "do": "to_connect",
                "class": json,
                "config": {},
                "data": base64.b64encode(document.encode()).decode(),
            }
    for text in (
        *payloads,
        '{"a":{"b":[1,2.5,null,"x"]}}',
        '{"payload":1}',
        '{"schema":null,"payload":1,"more":2}',
        "{",
        "nul",
        "'a'",
    ):
        for enabled in ("true", "false"):
            config = {"schemas.enable": enabled}
            yield {
                "do": "to_connect",
                "class": json,
                "config": config,
                "data": base64.b64encode(text.encode()).decode(),
            }
    content = {"schema.content": '{"type":"struct","fields":[{"type":"int32","field":"a"}]}'}
    for text in ('{"a":1}', '{"a":"x"}', "{}", "1"):
        yield {
            "do": "to_connect",
            "class": json,
            "config": content,
            "data": base64.b64encode(text.encode()).decode(),
        }
    numbers = {
        "Short": "int16",
        "Integer": "int32",
        "Long": "int64",
        "Float": "float",
        "Double": "double",
        "Boolean": "boolean",
    }
    for name, kind in numbers.items():
        converter = f"org.apache.kafka.connect.converters.{name}Converter"
        for other in VALUES:
            for value in VALUES[other][:2]:
                yield {
                    "do": "from_connect",
                    "class": converter,
                    "config": {},
                    "schema": simple(other),
                    "value": value,
                }
        yield {
            "do": "from_connect",
            "class": converter,
            "config": {},
            "schema": simple(kind, optional=True),
            "value": None,
        }
        for size in (0, 1, 2, 4, 8):
            data = base64.b64encode(bytes([1] * size)).decode()
            yield {"do": "to_connect", "class": converter, "config": {}, "data": data}
        yield {"do": "to_connect", "class": converter, "config": {}, "data": None}
    for name in ("storage.StringConverter", "converters.ByteArrayConverter"):
        converter = f"org.apache.kafka.connect.{name}"
        for kind, found in VALUES.items():
            for value in found:
                if kind != "bytes" or "Byte" in name:
                    yield {
                        "do": "from_connect",
                        "class": converter,
                        "config": {},
                        "schema": simple(kind),
                        "value": value,
                    }
        for data in (b"", b"abc", "\u20ac".encode(), b"\xff\xfe", None):
            text = None if data is None else base64.b64encode(data).decode()
            yield {"do": "to_connect", "class": converter, "config": {}, "data": text}


def documents() -> Iterator[Case]:
    """What Kafka's parser takes beyond the standard, and what it does not."""
    for text in (
        "",
        " ",
        '{"a":1}x',
        "[1] [2]",
        "01",
        "nul",
        "NaN",
        "'x'",
        '{"a":1,"a":2}',
        "{",
        "// c",
        "1.0",
    ):
        for config in ({}, {"schemas.enable": "false"}):
            data = base64.b64encode(text.encode()).decode()
            converter = "org.apache.kafka.connect.json.JsonConverter"
            yield {"do": "to_connect", "class": converter, "config": config, "data": data}


def all_cases() -> dict[str, list[Case]]:
    """By the file that they are kept in."""
    return {
        "cast": list(casts()),
        "timestamps": [*timestamps(), *zones()],
        "transforms": [*by_hand(), *at_random(7, 900)],
        "fields": [*chosen_fields(), *at_random(11, 1500, WithDefaults)],
        "values": list(values()),
        "converters": [*converters(), *documents()],
    }
