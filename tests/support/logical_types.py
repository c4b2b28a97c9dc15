"""An Avro record with every logical type, and what JSON easily loses: bytes, unions, NaN."""

import json
import math
from datetime import UTC, date, datetime
from datetime import time as clock_time
from decimal import Decimal
from uuid import UUID

LOGICAL = json.dumps(
    {
        "type": "record",
        "name": "Payment",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "exact", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
            {"name": "fine", "type": {"type": "long", "logicalType": "time-micros"}},
            {
                "name": "amount",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4},
            },
            {
                "name": "fee",
                "type": [
                    "null",
                    {
                        "type": "fixed",
                        "name": "Fee",
                        "size": 8,
                        "logicalType": "decimal",
                        "precision": 10,
                        "scale": 2,
                    },
                ],
            },
            {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "raw", "type": "bytes"},
            {"name": "either", "type": ["null", "long", "string", {"type": "map", "values": "int"}]},
            {"name": "ratio", "type": "double"},
        ],
    }
)
PAYMENT = {
    "at": datetime(2026, 11, 16, 12, 30, 15, 123000, UTC),
    "exact": datetime(1969, 12, 31, 23, 59, 59, 123456, UTC),
    "local": datetime(2026, 11, 16, 12, 30),
    "day": date(1950, 3, 1),
    "clock": clock_time(23, 59, 59, 999000),
    "fine": clock_time(23, 59, 59, 999999),
    "amount": Decimal("-1234567890.1234"),
    "fee": Decimal("0.30"),
    "id": UUID("6f0c4b39-0f26-4c5b-9f5e-1f64b3c2a111"),
    "raw": bytes(range(256)),
    "either": "42",
    "ratio": math.nan,
}
