"""The well-known quickstarts: which fields their records have, and which of them is the key.

The fields' names and types are those that tutorials rely on; what is in them is our own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Described = dict[str, Any]


class Quickstart(NamedTuple):
    key: str
    schema: Described


def _typed(kind: str, **properties: Any) -> Described:
    return {"type": kind, "arg.properties": properties}


def _pattern(regex: str) -> Described:
    return _typed("string", regex=regex)


def _one_of(*options: str) -> Described:
    return _typed("string", options=list(options))


def _between(kind: str, low: float, high: float) -> Described:
    return _typed(kind, range={"min": low, "max": high})


def _counting(kind: str, start: int, step: int = 1, restart: int | None = None) -> Described:
    more = {} if restart is None else {"restart": restart}
    return _typed(kind, iteration={"start": start, "step": step, **more})


def _record(name: str, namespace: str, /, **fields: Any) -> Described:
    listed = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "namespace": namespace, "fields": listed}


_USER = _pattern("User_[1-9]")
_REGION = _pattern("Region_[1-9]")
_GENDER = _one_of("MALE", "FEMALE", "OTHER")
_JULY_2017 = 1_500_000_000_000
_CITIES = ("Athens", "Bergen", "Cork", "Dresden", "Espoo", "Fukuoka", "Graz", "Halifax", "Izmir", "Jaipur")
_FIRST_NAMES = ("Ada", "Bruno", "Chiara", "Dmitri", "Elif", "Farah", "Goran", "Hana", "Ivo", "Jun")
_LAST_NAMES = ("Abel", "Brandt", "Costa", "Duarte", "Eklund", "Fischer", "Grant", "Haas", "Ito", "Jansen")
_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/126.0 Safari/537.36",
    "Mozilla/5.0 (compatible; ExampleBot/1.0)",
)
_REQUESTS = tuple(
    f"GET {path} HTTP/1.1" for path in ("/index.html", "/login", "/cart", "/images/logo.png", "/search")
)
_KSQL = "ksql"

_users = {
    "registertime": _between("long", _JULY_2017 - 10**10, _JULY_2017 + 10**10),
    "userid": _USER,
    "regionid": _REGION,
    "gender": _GENDER,
}

QUICKSTARTS: dict[str, Quickstart] = {
    "CLICKSTREAM": Quickstart(
        "ip",
        _record(
            "clickstream",
            _KSQL,
            ip=_pattern("111\\.[1-9]{2}\\.[1-9]{2}\\.[1-9]{2}"),
            userid=_between("int", 1, 41),
            remote_user=_one_of("-"),
            time=_pattern("[0-2][1-9]/Jul/2017:1[0-9]:[0-5][0-9]:[0-5][0-9]"),
            _time=_counting("long", 1, 10),
            request=_one_of(*_REQUESTS),
            status=_one_of("200", "200", "200", "302", "404", "405", "406", "407"),
            bytes=_one_of("278", "1289", "2048", "4006", "4096", "14096"),
            referrer=_one_of("-"),
            agent=_one_of(*_AGENTS),
        ),
    ),
    "CLICKSTREAM_CODES": Quickstart(
        "code",
        _record(
            "clickstream_codes",
            _KSQL,
            code=_typed("int", options=[200, 302, 404, 405, 406, 407]),
            definition=_one_of("Successful", "Redirect", "Page not found", "Method not allowed"),
        ),
    ),
    "CLICKSTREAM_USERS": Quickstart(
        "user_id",
        _record(
            "clickstream_users",
            _KSQL,
            user_id=_counting("int", 1, restart=41),
            registered_at=_between("long", _JULY_2017 - 10**10, _JULY_2017 + 10**10),
            username=_pattern("[a-z]{4,8}_[0-9]{2}"),
            first_name=_one_of(*_FIRST_NAMES),
            last_name=_one_of(*_LAST_NAMES),
            city=_one_of(*_CITIES),
            level=_one_of("Gold", "Silver", "Platinum"),
        ),
    ),
    "CREDIT_CARDS": Quickstart(
        "card_id",
        _record(
            "credit_cards",
            "datagen.example",
            card_id=_counting("long", 1),
            card_number=_pattern("0000-[0-9]{4}-[0-9]{4}-[0-9]{4}"),
            cvv=_pattern("[0-9]{3}"),
            expiration_date=_pattern("(0[1-9]|1[0-2])/(2[7-9]|3[0-2])"),
        ),
    ),
    "INVENTORY": Quickstart(
        "id",
        _record(
            "inventory",
            "datagen.example",
            id=_counting("long", 0),
            quantity=_between("int", 1, 100),
            productid=_between("int", 1, 100),
        ),
    ),
    "ORDERS": Quickstart(
        "orderid",
        _record(
            "orders",
            _KSQL,
            ordertime=_between("long", _JULY_2017 - 10**10, _JULY_2017 + 10**10),
            orderid=_counting("int", 0),
            itemid=_pattern("Item_[0-9]{1,3}"),
            orderunits=_between("double", 0.1, 10.0),
            address=_record(
                "address",
                _KSQL,
                city=_pattern("City_[0-9]{1,2}"),
                state=_pattern("State_[0-9]{1,2}"),
                zipcode=_between("long", 10_000, 99_999),
            ),
        ),
    ),
    "PAGEVIEWS": Quickstart(
        "viewtime",
        _record(
            "pageviews",
            _KSQL,
            viewtime=_counting("long", 1, 10),
            userid=_USER,
            pageid=_pattern("Page_[1-9]\\d"),
        ),
    ),
    "PRODUCT": Quickstart(
        "id",
        _record(
            "product",
            "datagen.example",
            id=_counting("long", 0),
            name=_pattern("product-[a-z]{5}"),
            description=_pattern("A [a-z]{4,9} [a-z]{4,9} for everyday use"),
            price=_between("double", 1, 500),
        ),
    ),
    "PURCHASES": Quickstart(
        "id",
        _record(
            "purchases",
            "datagen.example",
            id=_counting("long", 0),
            item_type=_one_of("book", "food", "furniture", "garden", "toy"),
            quantity=_between("int", 1, 11),
            price_per_unit=_between("double", 1, 100),
        ),
    ),
    "RATINGS": Quickstart(
        "rating_id",
        _record(
            "ratings",
            _KSQL,
            rating_id=_counting("long", 1),
            user_id=_between("int", 1, 21),
            stars=_between("int", 1, 6),
            route_id=_between("int", 1, 10_000),
            rating_time=_counting("long", 1, 12),
            channel=_one_of("web", "ios", "ios-test", "android", "iOS"),
            message=_one_of(
                "on time, friendly crew",
                "lost my bag again",
                "the seat was too small",
                "would fly with you again",
                "four hours late, and nobody said why",
            ),
        ),
    ),
    "SHOES": Quickstart(
        "id",
        _record(
            "shoes",
            "shoestore",
            id=_pattern("[0-9a-f]{8}-[0-9a-f]{4}"),
            brand=_one_of("Aster", "Birch", "Cedar", "Dune"),
            name=_one_of("Runner", "Trail", "Court", "Street"),
            sale_price=_between("int", 2_000, 20_000),
            rating=_between("double", 1, 5),
        ),
    ),
    "SHOE_CUSTOMERS": Quickstart(
        "id",
        _record(
            "shoe_customers",
            "shoestore",
            id=_pattern("[0-9a-f]{8}-[0-9a-f]{4}"),
            first_name=_one_of(*_FIRST_NAMES),
            last_name=_one_of(*_LAST_NAMES),
            email=_pattern("[a-z]{4,9}@example\\.(com|org)"),
            phone=_pattern("555-[0-9]{3}-[0-9]{4}"),
            street_address=_pattern("[1-9][0-9]{0,2} [A-Z][a-z]{4,8} Street"),
            state=_one_of("North", "South", "East", "West"),
            zip_code=_pattern("[0-9]{5}"),
            country=_one_of("Nowhere"),
            country_code=_one_of("NW"),
        ),
    ),
    "SHOE_ORDERS": Quickstart(
        "order_id",
        _record(
            "shoe_orders",
            "shoestore",
            order_id=_counting("int", 1000),
            product_id=_pattern("[0-9a-f]{8}-[0-9a-f]{4}"),
            customer_id=_pattern("[0-9a-f]{8}-[0-9a-f]{4}"),
            ts=_counting("long", 1_609_459_200_000, 100_000) | {"logicalType": "timestamp-millis"},
        ),
    ),
    "STOCK_TRADES": Quickstart(
        "symbol",
        _record(
            "StockTrade",
            _KSQL,
            side=_one_of("BUY", "SELL"),
            quantity=_between("int", 1, 5000),
            symbol=_one_of("ZVV", "ZVZZT", "ZWZZT", "ZBZX", "ZJZZT", "ZTEST", "ZXZZT"),
            price=_between("int", 5, 1000),
            account=_one_of("ABC123", "XYZ789", "LMN456"),
            userid=_USER,
        ),
    ),
    "STORES": Quickstart(
        "store_id",
        _record(
            "stores",
            "datagen.example",
            store_id=_counting("int", 1),
            city=_one_of(*_CITIES),
            state=_one_of("North", "South", "East", "West"),
        ),
    ),
    "TRANSACTIONS": Quickstart(
        "transaction_id",
        _record(
            "transactions",
            "datagen.example",
            transaction_id=_counting("long", 1),
            card_id=_between("long", 1, 25),
            user_id=_USER,
            purchase_id=_counting("long", 0),
            store_id=_between("int", 1, 8),
        ),
    ),
    "USERS": Quickstart("userid", _record("users", _KSQL, **_users)),
    "USERS_": Quickstart(
        "userid",
        _record(
            "users",
            _KSQL,
            **_users,
            interests={
                "type": "array",
                "items": _one_of("Chess", "Cycling", "Music", "Travel", "Weaving"),
                "arg.properties": {"length": {"min": 1, "max": 4}},
            },
            contactinfo={
                "type": "map",
                "values": _pattern("[0-9]{10}"),
                "arg.properties": {"length": 2, "keys": {"options": ["phone", "fax", "zipcode"]}},
            },
        ),
    ),
}
