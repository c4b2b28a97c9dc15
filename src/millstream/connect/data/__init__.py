"""Connect's data: schemas, structs, records, and the conversions between them.

A value is a plain Python object and its schema says what it is:

    INT8 INT16 INT32 INT64   int           FLOAT32 FLOAT64   float
    BOOLEAN                  bool          STRING            str
    BYTES                    bytes         ARRAY             list
    MAP                      dict          STRUCT            Struct
    Decimal                  decimal.Decimal, with the scale of its schema
    Date, Time, Timestamp    datetime in UTC, to the millisecond

Python has one int and one float: without a schema they count as INT64 and FLOAT64, as values out of plain
JSON do in Kafka.
"""
