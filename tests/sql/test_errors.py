"""Every mistake of the catalogue, made once: which entry is raised, and the words that people search for."""

from __future__ import annotations

import pytest

from millstream.sql.engine import plan_query
from millstream.sql.error_catalogue import CATALOGUE
from millstream.sql.errors import SqlError, join_english, sql_error
from millstream.sql.parser import parse_one
from millstream.sql.statements import Select
from tests.sql.playing import Played

JSON = "value_format='JSON'"
S = f"CREATE STREAM s (k STRING KEY, a INT, b STRING, arr ARRAY<INT>) WITH (kafka_topic='s', {JSON});"
R = f"CREATE STREAM r (k STRING KEY, a INT, c INT) WITH (kafka_topic='r', {JSON});"
T = f"CREATE TABLE t (k STRING PRIMARY KEY, a INT, f STRING) WITH (kafka_topic='t', {JSON});"
U = f"CREATE TABLE u (k STRING PRIMARY KEY, d INT) WITH (kafka_topic='u', {JSON});"
W = f"CREATE STREAM w (k STRING KEY, a INT) WITH (kafka_topic='w', {JSON}, window_type='session');"
W2 = W.replace("w", "w2", 1).replace("'w'", "'w2'").replace("'session'", "'tumbling', window_size='1 SECOND'")
SOURCE = f"CREATE SOURCE TABLE z (k STRING PRIMARY KEY, a INT) WITH (kafka_topic='z', {JSON});"
S2 = S.replace(" s ", " s2 ", 1)
WIN = "WINDOW TUMBLING (SIZE 1 SECOND)"


def create(columns: str, more: str = JSON, kind: str = "STREAM", name: str = "x") -> str:
    return f"CREATE {kind} {name} ({columns}) WITH (kafka_topic='x', {more});"


def csas(query: str) -> str:
    return S + R + T + U + f"CREATE STREAM o AS SELECT {query};"


def ctas(query: str) -> str:
    return S + R + T + U + f"CREATE TABLE o AS SELECT {query};"


def column(expression: str) -> str:
    return csas(f"k, {expression} AS x FROM s")


CASES: list[tuple[str, str, str]] = [
    ("one statement", "", "exactly one"),
    ("not a command", "SHOW STREAMS;", "Show"),
    ("too deep", column("+".join(["a"] * 900)), "nested too deeply"),
    ("LIMIT not whole", csas("k, a FROM s LIMIT 1.5"), "must be integer"),
    ("LIMIT of a sink", csas("k, a FROM s LIMIT 1"), "don't support LIMIT"),
    ("KEY in a table", create("k INT KEY", kind="TABLE"), "please use 'PRIMARY KEY'"),
    ("PRIMARY KEY in a stream", create("k INT PRIMARY KEY"), "please use 'KEY' for streams"),
    ("source exists", S + S, "Cannot add stream 'S': A stream with the same name already exists"),
    ("no such source", "DROP STREAM nope;", "Stream NOPE does not exist"),
    ("no such type", "DROP TYPE nope;", "NOPE"),
    ("type exists", "CREATE TYPE a AS INT; CREATE TYPE a AS INT;", "already registered"),
    ("drop of another kind", S + "DROP TABLE s;", "type is STREAM, but statement was DROP TABLE"),
    ("delete a source's topic", SOURCE + "DROP TABLE z DELETE TOPIC;", "read-only source: Z"),
    ("source in use", csas("k, a FROM s") + "INSERT INTO o SELECT k, a FROM r; DROP STREAM r;", "[INSERT"),
    ("source read by sources", csas("k, a FROM s") + "DROP STREAM s;", "read from this source: [O]"),
    (
        "window retention",
        ctas("b, COUNT(*) FROM s WINDOW TUMBLING (SIZE 1 HOUR, RETENTION 2 HOURS) GROUP BY b"),
        "Got size=[3600000], grace=[82800000], retention=[7200000]",
    ),
    (
        "session retention",
        ctas(
            "b, COUNT(*) FROM s WINDOW SESSION (9 SECONDS, RETENTION 9 SECONDS, GRACE PERIOD 1 SECOND) "
            "GROUP BY b"
        ),
        "Got gap=[9000], grace=[1000], retention=[9000]",
    ),
    (
        "OR REPLACE with inserts",
        csas("k, a FROM s")
        + "INSERT INTO o SELECT k, a FROM r; CREATE OR REPLACE STREAM o AS SELECT k, a FROM s WHERE a > 1;",
        "REPLACE for sink `O` is not supported",
    ),
    ("window size", ctas("k, COUNT(*) AS n FROM s WINDOW TUMBLING (SIZE 0 SECONDS) GROUP BY k"), "than zero"),
    ("session gap", ctas("k, COUNT(*) AS n FROM s WINDOW SESSION (0 SECONDS) GROUP BY k"), "Inactivity gap"),
    (
        "window advance",
        ctas("k, COUNT(*) AS n FROM s WINDOW HOPPING (SIZE 1 SECOND, ADVANCE BY 2 SECONDS) GROUP BY k"),
        "which is 1000 ms, but given advancement interval is: 2000 ms",
    ),
    (
        "OR REPLACE of a source",
        SOURCE.replace("CREATE", "CREATE OR REPLACE"),
        "not supported on source tables",
    ),
    (
        "alter a query",
        csas("k, a FROM s") + "ALTER STREAM o ADD COLUMN z INT;",
        "not supported for CREATE ... AS",
    ),
    ("alter a source", SOURCE + "ALTER TABLE z ADD COLUMN q INT;", "Cannot alter table 'Z'"),
    ("alter column", S + "ALTER STREAM s ADD COLUMN a INT;", "already exists"),
    (
        "not upgradeable",
        S + S.replace("CREATE", "CREATE OR REPLACE").replace("b STRING, ", ""),
        "DataSource '`S`' has schema = `K` STRING KEY, `A` INTEGER, `B` STRING, `ARR` ARRAY<INTEGER> which "
        "is not upgradeable to `K` STRING KEY, `A` INTEGER, `ARR` ARRAY<INTEGER>. (The following columns are "
        "changed, missing or reordered: [`B` STRING, `ARR` ARRAY<INTEGER>])",
    ),
    (
        "not upgradeable",
        S + S.replace("CREATE", "CREATE OR REPLACE").replace("k STRING", "k INT"),
        "(Key columns must be identical. The following key columns are changed",
    ),
    ("not upgradeable", S + S.replace("CREATE", "CREATE OR REPLACE").replace("'s'", "'q'"), "has topic = s"),
    ("not upgradeable", S + T.replace("TABLE t", "OR REPLACE TABLE s"), "has type = KSTREAM"),
    (
        "no upgrade of a step",
        csas("s.k, f FROM s JOIN t ON s.k = t.k")
        + "CREATE OR REPLACE STREAM o AS SELECT s.k, f FROM s JOIN t ON s.k = t.k WHERE s.a = 1;",
        "StreamTableJoin",
    ),
    (
        "upgrade changes a step",
        ctas("k, COUNT(*) AS n FROM s GROUP BY k")
        + "CREATE OR REPLACE TABLE o AS SELECT k, COUNT(*) AS n, SUM(a) AS m FROM s GROUP BY k;",
        "Plan step of type StreamAggregate must have matching aggregate functions",
    ),
    (
        "upgrade adds a step",
        csas("k, a FROM s") + "CREATE OR REPLACE STREAM o AS SELECT k, a FROM s PARTITION BY k;",
        "Cannot add a class io.confluent.ksql.execution.plan.StreamSelectKey step",
    ),
    ("alter of another kind", S + "ALTER TABLE s ADD COLUMN q INT;", "was ALTER TABLE"),
    ("unknown sink", S + "INSERT INTO nope SELECT * FROM s;", "Unknown source: NOPE"),
    ("foreign key full join", ctas("* FROM t FULL JOIN u ON t.f = u.k"), "Got T [FULL] OUTER JOIN U."),
    ("table functions in CASE", csas("k, CASE WHEN a = 1 THEN EXPLODE(arr) END FROM s"), "used in CASE"),
    ("join by order", csas("* FROM s JOIN t ON s.k > t.k"), "Only equality"),
    ("join key types", csas("* FROM s JOIN t ON t.k = s.a"), "Key types differ: INTEGER vs STRING"),
    (
        "joins of windows",
        W + W2 + "CREATE STREAM o AS SELECT * FROM w JOIN w2 WITHIN 1 HOUR ON w.k = w2.k;",
        "SESSION",
    ),
    ("insert into a table", S + T + "INSERT INTO t SELECT * FROM s;", "T is a table"),
    ("insert of a table", S + T + "INSERT INTO s SELECT * FROM t;", "select query result is TABLE"),
    (
        "insert into headers",
        create("k STRING KEY, h BYTES HEADER('h'), a INT") + S + "INSERT INTO x SELECT k, a FROM s;",
        "because it has header columns",
    ),
    (
        "insert into read-only",
        S + S.replace("STREAM s", "SOURCE STREAM y") + "INSERT INTO y SELECT * FROM s;",
        "Cannot insert into read-only stream: Y",
    ),
    (
        "incompatible schema",
        S + R + "INSERT INTO r SELECT k, a FROM s;",
        "Incompatible schema between results and sink.",
    ),
    # Properties
    ("no KAFKA_TOPIC", f"CREATE STREAM x (a INT) WITH ({JSON});", "KAFKA_TOPIC"),
    ("unknown property", create("a INT", JSON + ", nope='x'"), "NOPE"),
    ("KEY property", create("a INT", JSON + ", key='a'"), "(user_id STRING KEY, ...)"),
    (
        "property value",
        create("a INT", JSON + ", partitions='many'"),
        "Invalid value many for configuration PARTITIONS: Not a number of type INT",
    ),
    ("property value", create("a INT", JSON + ", wrap_single_value='x'"), "either true or false"),
    ("property value", create("a INT", "value_format=1"), "a string, but it was a java.lang.Integer"),
    ("property value", create("a INT").replace("'x'", "''"), "KAFKA_TOPIC: String must be non-empty"),
    (
        "schema name twice",
        create("a INT", JSON + ", value_avro_schema_full_name='a', value_schema_full_name='b'"),
        "Please only set 'VALUE_SCHEMA_FULL_NAME'",
    ),
    (
        "timestamp format",
        create("a STRING", JSON + ", timestamp='a', timestamp_format='yyyy-invalid'"),
        "config:TIMESTAMP_FORMAT, reason:Unknown pattern letter: i",
    ),
    (
        "protobuf only",
        create("a INT", JSON + ", value_protobuf_nullable_representation='WRAPPER'"),
        "Property VALUE_PROTOBUF_NULLABLE_REPRESENTATION can only be enabled with protobuf format",
    ),
    ("CLEANUP_POLICY", create("a INT", JSON + ", cleanup_policy='compact'"), "automatically inferred"),
    (
        "RETENTION_MS of a table",
        create("k INT PRIMARY KEY, a INT", JSON + ", retention_ms=1", "TABLE"),
        "Non-windowed tables do not support retention",
    ),
    (
        "RETENTION_MS of a table",
        S + "CREATE TABLE o WITH (retention_ms=1) AS SELECT k, COUNT(*) FROM s GROUP BY k;",
        "Non-windowed tables do not support retention",
    ),
    (
        "reserved query id",
        S + S2 + "INSERT INTO s2 WITH (query_id='csas_x') SELECT * FROM s;",
        "reserved query ID prefix (INSERTQUERY_, CTAS_, CSAS_, CST_). Got 'CSAS_X'",
    ),
    ("query id", S + S2 + "INSERT INTO s2 WITH (query_id='a-b') SELECT * FROM s;", "Got: 'A-B'"),
    (
        "query exists",
        S + S2 + "INSERT INTO s2 WITH (query_id='my') SELECT * FROM s;" * 2,
        "Query ID 'MY' already exists",
    ),
    (
        "FORMAT twice",
        create("a INT", JSON + ", format='JSON'"),
        "Cannot supply both 'VALUE_FORMAT' and 'FORMAT'",
    ),
    ("no format", create("a INT", "partitions=1"), "'ksql.persistence.default.format.value'"),
    (
        "delimiter",
        create("a INT", "value_format='DELIMITED', value_delimiter='ab'"),
        "Invalid delimiter value: 'ab'",
    ),
    (
        "WINDOW_SIZE",
        create("k INT KEY, a INT", JSON + ", window_type='hopping', window_size='x'"),
        "Invalid duration",
    ),
    (
        "WINDOW_SIZE of sessions",
        create("k INT KEY, a INT", JSON + ", window_type='session', window_size='1 HOUR'"),
        "should not be set for SESSION",
    ),
    ("no WINDOW_SIZE", create("k INT KEY, a INT", JSON + ", window_type='hopping'"), "require 'WINDOW_SIZE'"),
    ("WINDOW_SIZE of sessions", create("a INT", JSON + ", window_size='1 HOUR'"), "for SESSION windows"),
    (
        "WINDOW_SIZE",
        create("k INT KEY, a INT", JSON + ", window_type='hopping', window_size='two HOURS'"),
        "Invalid duration: 'two HOURS'. Not numeric: 'two'",
    ),
    (
        "WINDOW_SIZE",
        create("k INT KEY, a INT", JSON + ", window_type='hopping', window_size='2 MOONS'"),
        "Unknown time unit: 'MOONS'",
    ),
    ("property value", create("a INT", JSON + ", window_type='round'"), "one of: SESSION, HOPPING, TUMBLING"),
    (
        "elements and schema id",
        create("a INT", "value_format='AVRO', value_schema_id=1"),
        "cannot both exist",
    ),
    (
        "schema id without inference",
        "CREATE STREAM x WITH (kafka_topic='x', value_format='JSON', value_schema_id=1);",
        "Current format is JSON",
    ),
    (
        "no registry",
        "CREATE STREAM x WITH (kafka_topic='x', value_format='AVRO');",
        "ksql.schema.registry.url",
    ),
    (
        "no such wrapping",
        create("a INT", "value_format='DELIMITED', wrap_single_value=true"),
        "set to 'true'",
    ),
    ("wrapping of several", create("a INT, b INT", JSON + ", wrap_single_value=false"), "single-field"),
    (
        "key format without key",
        S + "CREATE STREAM o WITH (key_format='JSON') AS SELECT a FROM s PARTITION BY NULL;",
        "without key columns",
    ),
    # Schemas
    ("no PRIMARY KEY", create("a INT", kind="TABLE"), "Please define the PRIMARY KEY"),
    (
        "no columns",
        "CREATE STREAM x WITH (kafka_topic='x', value_format='JSON');",
        "does not define any columns",
    ),
    ("windowed without key", create("a INT", JSON + ", window_type='session'"), "require a key column"),
    ("reserved column", create("ROWTIME INT"), "'ROWTIME' is a reserved column name"),
    ("duplicate column", create("a INT, a INT"), "`A`"),
    ("header type", create("a INT HEADER('x')"), "expected BYTES, got INTEGER"),
    (
        "headers twice",
        create("a BYTES HEADER('x'), b ARRAY<STRUCT<key STRING, value BYTES>> HEADERS"),
        "already contains a HEADERS",
    ),
    ("header twice", create("a BYTES HEADER('x'), b BYTES HEADER('x')"), "HEADER('x')"),
    (
        "format and schema",
        create("k ARRAY<INT> KEY, a INT"),
        "The 'KAFKA' format does not support type 'ARRAY'",
    ),
    ("timestamp column", create("a INT", JSON + ", timestamp='q'"), "'Q'"),
    ("timestamp type", create("a INT", JSON + ", timestamp='a'"), "should be LONG(INT64)"),
    (
        "timestamp format without text",
        create("a BIGINT", JSON + ", timestamp='a', timestamp_format='yyyy'"),
        "can only be used when the timestamp column is of type STRING",
    ),
    (
        "timestamp text without format",
        create("a STRING", JSON + ", timestamp='a'"),
        "without also specifying the timestamp_format",
    ),
    ("unknown type", create("a NOPE"), "Cannot resolve unknown type: NOPE"),
    ("DECIMAL parameters", create("a DECIMAL"), "DECIMAL(10, 2)"),
    # Expressions: test_codegen has their texts
    ("arithmetic", column("a + b"), "Unsupported arithmetic types"),
    ("sign", column("-b"), "cannot be applied"),
    ("comparison", column("a = b"), "Cannot compare A (INTEGER) to B (STRING) with EQUAL."),
    ("no operator", column("a IN (arr)"), "operator does not exist"),
    ("LIKE of no text", column("a LIKE 'x'"), "between strings"),
    ("no boolean", column("a AND TRUE"), "boolean"),
    (
        "filter type",
        csas("k, a FROM s WHERE a + 1"),
        "Should evaluate to boolean but is (A + 1) (INTEGER) instead.",
    ),
    ("in clause", csas("k, a FROM s WHERE a = b"), "Error in WHERE expression: Cannot compare A (INTEGER)"),
    ("CASE condition", column("CASE WHEN a THEN 1 END"), "should be boolean"),
    ("CASE of nothing", column("CASE WHEN a = 1 THEN NULL END"), "NULL type"),
    ("CASE types", column("CASE WHEN a = 1 THEN a WHEN a = 2 THEN b END"), "for all 'THEN' clauses"),
    ("CASE default type", column("CASE WHEN a = 1 THEN a ELSE 1.5 END"), "for the default clause"),
    ("empty array", column("ARRAY[]"), "cannot be empty"),
    ("array of nothing", column("ARRAY[NULL]"), "all NULL elements"),
    ("empty map", column("MAP()"), "cannot be empty"),
    ("map of null keys", column("MAP(NULL := 1)"), "NULL keys"),
    ("map of null values", column("MAP(1 := NULL)"), "NULL values"),
    ("struct of null", column("STRUCT(x := NULL)"), "X"),
    ("literal of another type", column("ARRAY[1, 'x']"), "invalid input syntax"),
    ("no struct", column("a->x"), "Expected STRUCT"),
    ("no struct for star", csas("k, a->* FROM s"), "Column `A` is not a STRUCT type."),
    ("no such field", column("STRUCT(x := 1)->y"), "'Y'"),
    ("array index", column("arr['x']"), "index"),
    ("no subscript", column("a[1]"), "do not apply to INTEGER"),
    ("lambda outside", column("x => x"), "argument of a function"),
    ("lambda parameter twice", column("TRANSFORM(arr, x => TRANSFORM(arr, x => x))"), "Reusing"),
    (
        "lambda parameter of a column",
        column("TRANSFORM(arr, a => a + 1)"),
        "Lambda function argument can't be a column name: A",
    ),
    (
        "lambda parameter repeated",
        column("REDUCE(arr, 1, (x, x) => x)"),
        "Lambda arguments have duplicates: [X, X]",
    ),
    ("lambda of null", column("TRANSFORM(arr, x => NULL)"), "not NULL"),
    ("function of another kind", csas("k, a FROM s PARTITION BY COUNT(a)"), "COUNT(A)"),
    ("aggregate literal", ctas("k, TOPK(a, a) FROM s GROUP BY k"), "must be a literal constant"),
    ("select of null", column("NULL"), "Can't infer a type of null"),
    # Names
    ("unknown source", csas("* FROM nope"), "NOPE does not exist."),
    ("unknown alias", csas("k, q.a FROM s"), "'Q' is not a valid stream/table name or alias."),
    (
        "unknown column in WHERE",
        ctas(f"k, COUNT(*) FROM s {WIN} WHERE windowend > 1 GROUP BY k"),
        "WINDOWEND",
    ),
    (
        "unresolved column",
        csas("x.ROWKEY FROM x").replace(S, create("a INT", JSON)),
        "\nThere is no ROWKEY today: a key is a column that the source declares, and this one has none.",
    ),
    (
        "unresolved column",
        csas("k, ROWKEY FROM s"),
        "There is no ROWKEY today: a key is a column that the source declares, here S.K.",
    ),
    ("unresolved column", csas("k, nope FROM s"), "SELECT column 'NOPE' cannot be resolved."),
    (
        "ambiguous column",
        csas("s.k, a FROM s JOIN r WITHIN 1 HOUR ON s.k = r.k"),
        "Column 'A' is ambiguous. Could be R.A or S.A.",
    ),
    ("no time", csas("k, a FROM s WHERE rowtime > 'soon'"), "Failed to parse timestamp 'soon'"),
    ("reserved alias", csas("k, a AS rowtime FROM s"), "You cannot use it as an alias"),
    ("reserved in select", csas("k, rowtime FROM s"), "Reserved column name in select: `ROWTIME`"),
    (
        "duplicate in select",
        csas("k, a, b AS a FROM s"),
        "Duplicate value columns found in schema: `A` STRING",
    ),
    ("duplicate in select", csas("k, k, a FROM s"), "Duplicate key columns found in schema: `K` STRING KEY"),
    (
        "duplicate in select",
        csas("k, a, STRUCT(a := b)->* FROM s"),
        "Duplicate value columns found in schema: `A` STRING",
    ),
    ("key missing", csas("a FROM s"), "must include the key column K in its projection (eg, SELECT K...)."),
    (
        "key missing",
        ctas("COUNT(*) AS n FROM s GROUP BY a, b"),
        "must include the grouping expressions A and B in its projection (eg, SELECT A, B...).",
    ),
    (
        "key missing",
        csas("s.b, c FROM s JOIN r WITHIN 1 HOUR ON s.k = r.k"),
        "must include the join expressions S.K or R.K in its projection",
    ),
    ("foreign key missing", ctas("f, d FROM t JOIN u ON t.f = u.k"), "Missing column: `K`."),
    ("key twice", csas("k, k AS q, a FROM s"), "(`K`) more than once, aliased as: K and Q."),
    ("key twice in groups", ctas("a, a AS q, COUNT(*) FROM s GROUP BY a"), "more than once: `A` and `Q`."),
    ("no value columns", csas("k FROM s"), "no value columns"),
    # Clauses
    ("GROUP BY null", ctas("COUNT(*) FROM s GROUP BY NULL"), "NULL"),
    ("GROUP BY without aggregates", ctas("a FROM s GROUP BY a"), "requires aggregate functions"),
    ("aggregate in GROUP BY", ctas("COUNT(*) FROM s GROUP BY SUM(a)"), "SUM is an aggregate function"),
    ("duplicate GROUP BY", ctas("a, COUNT(*) FROM s GROUP BY a, s.a"), "S.A"),
    ("nested aggregates", ctas("k, SUM(COUNT(a)) FROM s GROUP BY k"), "can not be nested: SUM(COUNT())"),
    ("aggregate without GROUP BY", ctas("COUNT(*) FROM s"), "[COUNT(ROWTIME)] without a GROUP BY"),
    ("not grouped", ctas("a, b, COUNT(*) FROM s GROUP BY a"), "not part of GROUP BY: B"),
    ("HAVING not grouped", ctas("a, COUNT(*) FROM s GROUP BY a HAVING b = 'x'"), "not part of GROUP BY: B"),
    ("HAVING without GROUP BY", csas("k, a FROM s HAVING a = 1"), "GROUP BY"),
    (
        "order or distinct",
        csas("k, a FROM s ORDER BY a"),
        "Syntax Error\nORDER BY and DISTINCT need all rows",
    ),
    (
        "aggregate without undo",
        ctas("a, MAX(a) FROM t GROUP BY a"),
        "The aggregation function MAX cannot be applied",
    ),
    ("aggregates without undo", ctas("a, MIN(a), MAX(a) FROM t GROUP BY a"), "functions MIN and MAX"),
    (
        "intermediate type",
        create("k STRING KEY, a INT", "value_format='DELIMITED'")
        + "CREATE TABLE o AS SELECT k, COLLECT_LIST(a) FROM x GROUP BY k;",
        "intermediate type",
    ),
    (
        "window bounds",
        ctas(f"k, MIN(windowstart) FROM s {WIN} GROUP BY k"),
        "Window bounds column WINDOWSTART",
    ),
    ("WINDOW without GROUP BY", csas(f"k, a FROM s {WIN}"), "requires a GROUP BY"),
    (
        "windows of a table",
        ctas(f"k, COUNT(*) FROM t {WIN} GROUP BY k"),
        "not supported for table aggregations",
    ),
    ("EMIT FINAL", ctas("k, COUNT(*) FROM s GROUP BY k EMIT FINAL"), "only supported for windowed"),
    (
        "KAFKA format",
        create("k STRING KEY, a INT", "value_format='KAFKA'")
        + "CREATE TABLE o AS SELECT a, COUNT(*) FROM x GROUP BY a;",
        "Source(s) X are using the 'KAFKA' value format",
    ),
    ("result type", ctas("k, a FROM s"), "Please use CREATE STREAM AS SELECT"),
    ("result type", csas("k, COUNT(*) FROM s GROUP BY k"), "Please use CREATE TABLE AS SELECT"),
    ("PARTITION BY of a table", ctas("k, a FROM t PARTITION BY a"), "not supported on tables"),
    (
        "PARTITION BY of windows",
        W + "CREATE STREAM o AS SELECT a, k FROM w PARTITION BY a;",
        "windowed sources",
    ),
    ("nested table functions", csas("k, EXPLODE(ARRAY[EXPLODE(arr)]) FROM s"), "EXPLODE(EXPLODE())"),
    (
        "table functions and aggregates",
        ctas("a, EXPLODE(ARRAY[a]), COUNT(*) FROM s GROUP BY a"),
        "aggregations",
    ),
    ("table functions of a table", ctas("k, EXPLODE(ARRAY[a]) FROM t"), "Table source is not supported"),
    # Joins
    ("self join", csas("* FROM s a JOIN s b WITHIN 1 HOUR ON a.k = b.k"), "Can not join 'S' to 'S'"),
    ("source twice", csas("* FROM s JOIN t ON s.k = t.k JOIN t q ON s.k = q.k"), "'T'"),
    ("join condition", csas("* FROM s JOIN t ON NOT (s.k = t.k)"), "Unsupported join expression"),
    (
        "several join conditions",
        csas("* FROM s JOIN t ON s.k = t.k AND s.a = t.a"),
        "((S.K = T.K) AND (S.A = T.A))",
    ),
    ("join side", csas("* FROM s JOIN t ON s.k = 'x'"), "Invalid comparison expression ''x''"),
    ("join of one source", csas("* FROM s JOIN t ON s.k = s.b"), "Left side references `S`"),
    ("join without its source", csas("* FROM s JOIN t ON s.k = t.k JOIN u ON s.k = t.k"), "(`U`)"),
    ("table-stream join", csas("* FROM t JOIN s ON t.k = s.k"), "Got T [INNER] JOIN S."),
    ("stream-table outer join", csas("* FROM s FULL JOIN t ON s.k = t.k"), "full-outer join not supported"),
    ("stream-table right join", csas("* FROM s RIGHT JOIN t ON s.k = t.k"), "RIGHT [OUTER] JOIN"),
    ("WITHIN of tables", ctas("* FROM t JOIN u WITHIN 1 HOUR ON t.k = u.k"), "Table-Table join again"),
    ("join condition", csas("* FROM s JOIN t ON s.k = t.k AND s.a > t.a"), "Unsupported join expression"),
    (
        "unresolved column",
        csas("* FROM s JOIN t ON s.k = u.k JOIN u ON u.k = s.k"),
        "JOIN ON column 'U.K' cannot be resolved",
    ),
    (
        "repartition of a table",
        "".join(
            f"CREATE TABLE t{n} (k STRING PRIMARY KEY, f STRING) WITH (kafka_topic='t', {JSON});"
            for n in "123"
        )
        + "CREATE TABLE o AS SELECT * FROM t1 JOIN t2 ON t1.f = t2.k JOIN t3 ON t2.k = t3.k;",
        "key column K instead of T2.K",
    ),
    (
        "topic in use",
        S + S2 + "DROP STREAM s2 DELETE TOPIC;",
        "Refusing to delete topic. Found other data sources (S) using topic s",
    ),
    ("duplicate PARTITION BY", csas("* FROM s PARTITION BY a, s.a"), "expression: A"),
    ("PARTITION BY null and more", csas("* FROM s PARTITION BY a, NULL"), "including NULL"),
    ("no WITHIN", csas("* FROM s JOIN r ON s.k = r.k"), "must have a WITHIN"),
    ("WITHIN of a table", csas("* FROM s JOIN t WITHIN 1 HOUR ON s.k = t.k"), "Stream-Table join"),
    ("join on no primary key", ctas("* FROM t JOIN u ON t.a = u.d"), "Got T.A = U.D."),
    ("join on no table key", csas("* FROM s JOIN t ON s.a = t.a"), "table's primary key. Got S.A = T.A."),
    ("join types", ctas("* FROM t JOIN u ON t.a = u.k"), "Got T.A{INTEGER} = U.K{STRING}."),
    ("join types", ctas("* FROM t JOIN u ON u.k = t.a"), "Got U.K{STRING} = T.A{INTEGER}."),
    (
        "foreign key join type",
        ctas("* FROM t RIGHT JOIN u ON t.f = u.k"),
        "RIGHT OUTER JOIN on a foreign key",
    ),
    (
        "foreign key in n-way",
        ctas("* FROM t JOIN u ON t.k = u.k JOIN z ON t.f = z.k").replace(S, S + SOURCE),
        "n-way",
    ),
    (
        "foreign key of windows",
        "".join(
            one.replace("STREAM", "TABLE").replace("k STRING KEY", "k STRING PRIMARY KEY") for one in (W, W2)
        )
        .replace("a INT", "a STRING")
        .replace("session'", "hopping', window_size='1 SECOND'")
        + "CREATE TABLE o AS SELECT * FROM w2 JOIN w ON w2.a = w.k;",
        "windowed tables",
    ),
    (
        "windowed with not",
        W + S + "CREATE STREAM o AS SELECT * FROM s JOIN w WITHIN 1 HOUR ON s.k = w.k;",
        "non-windowed",
    ),
    (
        "windowed repartition",
        W
        + W.replace("w", "w3", 1).replace("'w'", "'w3'")
        + "CREATE STREAM o AS SELECT * FROM w JOIN w3 WITHIN 1 HOUR ON w.a = w3.a;",
        "Implicit",
    ),
    (
        "partitions",
        create("k STRING KEY, a INT", JSON + ", partitions=2")
        + create("k STRING PRIMARY KEY, a INT", JSON + ", partitions=3", "TABLE", "y")
        + "CREATE STREAM o AS SELECT * FROM x JOIN y ON x.k = y.k;",
        "`X` partitions = 2; `Y` partitions = 3",
    ),
]
# Raised only for queries whose rows go to a client, with a registry, by what is checked before, or by
# a server.
ELSEWHERE = {
    *("schema id columns", "join on null", "unknown column"),
    *("no such setting", "setting value", "setting denied", "too many queries", "too long"),
}


@pytest.mark.parametrize(("entry", "script", "words"), CASES, ids=[f"{entry}" for entry, _, _ in CASES])
def test_each_mistake_has_its_entry(entry: str, script: str, words: str) -> None:
    with pytest.raises(SqlError) as caught:
        if script:
            Played(script)
        else:
            parse_one(script)
    assert (caught.value.entry, words in str(caught.value)) == (entry, True), str(caught.value)


def test_the_whole_catalogue_is_made_once() -> None:
    assert {entry for entry, _, _ in CASES} | ELSEWHERE == set(CATALOGUE)


def test_an_aggregate_for_a_client_needs_no_groups() -> None:
    played = Played(S)
    statement = parse_one("SELECT COUNT(*) AS n FROM s EMIT CHANGES;")
    assert isinstance(statement, Select)
    _, _, types = plan_query(statement.query, played.catalog, played.environment)
    assert [(column.name, str(type_)) for column, type_ in types] == [("N", "BIGINT")]
    statement = parse_one("SELECT a, COUNT(*) FROM s EMIT CHANGES;")
    assert isinstance(statement, Select)
    with pytest.raises(SqlError, match="not part of GROUP BY: A"):
        plan_query(statement.query, played.catalog, played.environment)


def test_the_place_is_named_where_it_is_known() -> None:
    with pytest.raises(SqlError, match="Line: 2, Col: 11: SELECT column 'NOPE' cannot be resolved") as caught:
        Played(S + "CREATE STREAM o AS\nSELECT k, nope FROM s;")
    assert caught.value.location == (2, 11)
    assert caught.value.statement == "CREATE STREAM o AS\nSELECT k, nope FROM s"
    assert (caught.value.status, caught.value.error_code) == (400, 40001)


def test_lists_in_messages() -> None:
    assert join_english(["a"]) == "a"
    assert join_english(["a", "b", "c"], "or") == "a, b or c"
    assert str(sql_error("unknown column", name="X")) == "Unknown column X."
