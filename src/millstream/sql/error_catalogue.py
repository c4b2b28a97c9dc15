"""The catalogue: for each mistake the text, whether its place is named in front, the error code and the HTTP
status."""

from __future__ import annotations

from millstream.sql.errors import BAD_REQUEST, Entry

_PREPARE = "Failed to prepare statement: "
_EXCEPTION = "Exception while preparing statement: "
_TABLE_KEYS = (
    "\nTables have PRIMARY KEYs, which are unique and NON NULL."
    "\nStreams have KEYs, which have no uniqueness or NON NULL constraints."
)
_ONCE = (
    "\nEach key column must only be in the projection once. If you intended to copy the key into the value, "
    "then consider using the AS_VALUE function to indicate which key reference should be copied."
)
_REPARTITION = (
    "Implicit repartitioning of windowed sources is not supported. "
    "See https://github.com/confluentinc/ksql/issues/4385."
)
_ISSUE = "(see https://github.com/confluentinc/ksql/issues/4239)"

_STATEMENTS: dict[str, Entry] = {
    "one statement": Entry(
        "Expected exactly one KSQL statement; found {found} instead", error_code=BAD_REQUEST
    ),
    "not a command": Entry("{kind} is not a statement that changes the catalog"),
    "no such setting": Entry("Unknown property: {name}"),
    "setting value": Entry(
        "Failed to set '{name}' to '{value}': Invalid value {value} for configuration {why}"
    ),
    "setting denied": Entry("Cannot override property '{name}'", error_code=BAD_REQUEST),
    "too many queries": Entry(
        "Not executing statement(s) '{text}' as it would cause the number of active, persistent queries to "
        "exceed the configured limit. Use the TERMINATE command to terminate existing queries, or increase "
        "the '{setting}' setting via the 'ksql-server.properties' file. Current persistent query count: "
        "{count}. Configured limit: {limit}.",
        error_code=BAD_REQUEST,
    ),
    "too long": Entry("The statement has {count} words and symbols. The most that one may have is {limit}"),
    "too deep": Entry("The statement is nested too deeply", located=True),
    "LIMIT not whole": Entry("Value must be integer for command: LIMIT", prefix=_PREPARE),
    "KEY in a table": Entry(
        "Column `{name}` is a 'KEY' column: please use 'PRIMARY KEY' for tables." + _TABLE_KEYS, located=True
    ),
    "PRIMARY KEY in a stream": Entry(
        "Column `{name}` is a 'PRIMARY KEY' column: please use 'KEY' for streams." + _TABLE_KEYS, located=True
    ),
    "source exists": Entry("Cannot add {kind} '{name}': A {existing} with the same name already exists"),
    "no such source": Entry("{kind} {name} does not exist."),
    "no such type": Entry("Type {name} does not exist."),
    "type exists": Entry(
        "Cannot register custom type '{name}' since it is already registered with type: {type}"
    ),
    "drop of another kind": Entry(
        "Incompatible data source type is {found}, but statement was DROP {wanted}"
    ),
    "delete a source's topic": Entry("Cannot delete topic for read-only source: {name}"),
    "topic in use": Entry("Refusing to delete topic. Found other data sources ({names}) using topic {topic}"),
    "source in use": Entry(
        "Cannot drop {name}.\nThe following queries read from this source: [{readers}].\n"
        "The following queries write into this source: [{writers}].\n"
        "You need to terminate them before dropping {name}."
    ),
    "source read by sources": Entry(
        "Cannot drop {name}.\nThe following streams and/or tables read from this source: [{names}].\n"
        "You need to drop them before dropping {name}."
    ),
    "OR REPLACE with inserts": Entry(
        "REPLACE for sink {name} is not supported because there are multiple queries writing into it: "
        "[{queries}]"
    ),
    "window size": Entry("Window size (sizeMs) must be larger than zero.", located=True),
    "session gap": Entry("Inactivity gap must be larger than zero.", located=True),
    "window advance": Entry(
        "Window advancement interval should be more than zero and less than window duration which is {size} "
        "ms, but given advancement interval is: {advance} ms",
        located=True,
    ),
    "window retention": Entry(
        "The retention period of the window store Aggregate-Aggregate-Materialize must be no smaller than "
        "its window size plus the grace period. Got size=[{size}], grace=[{grace}], retention=[{retention}]"
    ),
    "session retention": Entry(
        "The retention period of the session store Aggregate-Aggregate-Materialize must be no smaller than "
        "the session inactivity gap plus the grace period. Got gap=[{size}], grace=[{grace}], "
        "retention=[{retention}]"
    ),
    "OR REPLACE of a source": Entry(
        "Cannot add {kind} '{name}': CREATE OR REPLACE is not supported on source {kind}s."
    ),
    "alter a query": Entry("ALTER command is not supported for CREATE ... AS statements."),
    "alter a source": Entry(
        "Cannot alter {kind} '{name}': ALTER operations are not supported on source {kind}s."
    ),
    "alter column": Entry(
        "Cannot add column `{name}` to schema. A column with the same name already exists."
    ),
    "not upgradeable": Entry(
        "Cannot upgrade data source: DataSource '{name}' has {what} = {old} which is not upgradeable to "
        "{new}{detail}"
    ),
    "no upgrade of a step": Entry("Upgrades not yet supported for {step}"),
    "upgrade adds a step": Entry(
        "Query is not upgradeable. Cannot add a {step} step that is not in the original query plan."
    ),
    "upgrade changes a step": Entry(
        "Query is not upgradeable. Plan step of type {step} must have matching {property}. Values differ: "
        "{old} vs. {new}"
    ),
    "alter of another kind": Entry(
        "Incompatible data source type is {found}, but statement was ALTER {wanted}"
    ),
    "LIMIT of a sink": Entry("CREATE {kind} AS SELECT statements don't support LIMIT clause."),
    "schema id columns": Entry(
        "The following {part} columns are changed, missing or reordered: [{wrong}]. Schema from schema "
        "registry is [{found}]"
    ),
    "insert into a table": Entry("INSERT INTO can only be used to insert into a stream. {name} is a table."),
    "insert of a table": Entry(
        "Incompatible data sink and query result. Data sink ({name}) type is STREAM but select query result "
        "is TABLE."
    ),
    "insert into headers": Entry("Cannot insert into {name} because it has header columns"),
    "insert into read-only": Entry("Cannot insert into read-only {kind}: {name}"),
    "incompatible schema": Entry(
        "Incompatible schema between results and sink.\nResult schema is {result}\nSink schema is {sink}"
    ),
}

_PROPERTIES: dict[str, Entry] = {
    "no KAFKA_TOPIC": Entry(
        'Missing required property "KAFKA_TOPIC" which has no default value.', prefix=_PREPARE
    ),
    "unknown property": Entry("Invalid config variable(s) in the WITH clause: {names}", prefix=_PREPARE),
    "KEY property": Entry(
        "Invalid config variable(s) in the WITH clause: KEY\nThe key is declared with the columns today: "
        "write (user_id STRING KEY, ...) for a stream or (user_id STRING PRIMARY KEY, ...) for a table in "
        "place of KEY='user_id'.",
        prefix=_PREPARE,
    ),
    "property value": Entry("Invalid value {value} for configuration {name}: {why}", prefix=_PREPARE),
    "schema name twice": Entry(
        "Cannot supply both 'VALUE_AVRO_SCHEMA_FULL_NAME' and 'VALUE_SCHEMA_FULL_NAME' properties. Please "
        "only set 'VALUE_SCHEMA_FULL_NAME'.",
        prefix=_PREPARE,
    ),
    "timestamp format": Entry(
        "Invalid datetime format for config:TIMESTAMP_FORMAT, reason:{why}", prefix=_PREPARE
    ),
    "protobuf only": Entry("Property {name} can only be enabled with protobuf format"),
    "CLEANUP_POLICY": Entry(
        "Invalid config variable in the WITH clause: CLEANUP_POLICY.\nThe CLEANUP_POLICY config is "
        "automatically inferred based on the type of source (STREAM or TABLE).\nUsers can't set the "
        "CLEANUP_POLICY config manually."
    ),
    "RETENTION_MS of a table": Entry(
        "Invalid config variable in the WITH clause: RETENTION_MS. Non-windowed tables do not support "
        "retention."
    ),
    "reserved query id": Entry(
        "Query IDs must not start with a reserved query ID prefix ({prefixes}). Got '{name}'."
    ),
    "query id": Entry("Query IDs may contain only alphanumeric characters and '_'. Got: '{name}'"),
    "query exists": Entry("Query ID '{name}' already exists."),
    "FORMAT twice": Entry(
        "Cannot supply both '{part}_FORMAT' and 'FORMAT' properties, as 'FORMAT' sets both key and value "
        "formats. Either use just 'FORMAT', or use 'KEY_FORMAT' and 'VALUE_FORMAT'.",
        prefix=_PREPARE,
    ),
    "no format": Entry(
        "Statement is missing the '{part}_FORMAT' property from the WITH clause. Either provide one or set a "
        "default via the '{setting}' config."
    ),
    "delimiter": Entry("Configuration {part}_DELIMITER is invalid: {why}", prefix=_PREPARE),
    "WINDOW_SIZE": Entry(
        "Configuration WINDOW_SIZE is invalid: Invalid duration: '{size}'. {why}\nExample valid value: "
        "'10 SECONDS'",
        prefix=_PREPARE,
    ),
    "WINDOW_SIZE of sessions": Entry("'WINDOW_SIZE' should not be set for SESSION windows.", prefix=_PREPARE),
    "no WINDOW_SIZE": Entry(
        "{type} windows require 'WINDOW_SIZE' to be provided in the WITH clause. For example: "
        "'WINDOW_SIZE'='10 SECONDS'",
        prefix=_PREPARE,
    ),
    "elements and schema id": Entry(
        "Table elements and {part}_SCHEMA_ID cannot both exist for create statement."
    ),
    "schema id without inference": Entry(
        "{part}_FORMAT should support schema inference when {part}_SCHEMA_ID is provided. Current format is "
        "{format}."
    ),
    "no registry": Entry(
        "The columns have to be given, or a schema registry has to be set (ksql.schema.registry.url) from "
        "which {format} takes them."
    ),
    "no such wrapping": Entry("Format '{format}' does not support 'WRAP_SINGLE_VALUE' set to '{wrap}'."),
    "wrapping of several": Entry("'WRAP_SINGLE_VALUE' is only valid for single-field value schemas"),
    "key format without key": Entry("Key format specified for {kind} without key columns."),
}

_SCHEMAS: dict[str, Entry] = {
    "no PRIMARY KEY": Entry("Tables require a PRIMARY KEY. Please define the PRIMARY KEY.{hint}"),
    "no columns": Entry("The statement does not define any columns."),
    "windowed without key": Entry("Windowed sources require a key column."),
    "reserved column": Entry(
        "'{name}' is a reserved column name. You cannot use it as a name for a column.", located=True
    ),
    "duplicate column": Entry("Duplicate column names: `{name}`", located=True),
    "header type": Entry("Invalid type for {shown} column: expected {expected}, got {found}"),
    "headers twice": Entry("Schema already contains a HEADERS column."),
    "header twice": Entry("Schema already contains a HEADER('{key}') column."),
    "format and schema": Entry(
        "{part} format does not support schema.\nformat: {format}\nschema: "
        "Persistence{{columns=[{columns}], features=[]}}\nreason: {reason}"
    ),
    "timestamp column": Entry(
        "The TIMESTAMP column set in the WITH clause does not exist in the schema: '{name}'"
    ),
    "timestamp type": Entry(
        "Timestamp column, `{name}`, should be LONG(INT64), TIMESTAMP, or a String with a timestamp_format "
        "specified."
    ),
    "timestamp text without format": Entry(
        "A String timestamp field has been specified without also specifying the timestamp_format"
    ),
    "timestamp format without text": Entry(
        "'TIMESTAMP_FORMAT' set in the WITH clause can only be used when the timestamp column is of type "
        "STRING."
    ),
    "unknown type": Entry("Cannot resolve unknown type: {name}", located=True),
    "DECIMAL parameters": Entry("DECIMAL needs precision and scale: DECIMAL(10, 2)", located=True),
}

_EXPRESSIONS: dict[str, Entry] = {
    "arithmetic": Entry("Error processing expression: {expression}. {why}"),
    "sign": Entry("'{sign}' cannot be applied to {type}", located=True),
    "comparison": Entry("Cannot compare {left} ({left_type}) to {right} ({right_type}) with {operator}."),
    "no operator": Entry(
        "operator does not exist: {left} = {right} ({expression})\nHint: You might need to add explicit type "
        "casts."
    ),
    "LIKE of no text": Entry("LIKE condition must be between strings: {expression} is {type}", located=True),
    "no boolean": Entry("Type error: {expression} should evaluate to boolean but is {type}", located=True),
    "filter type": Entry(
        "Type error in {clause} expression: Should evaluate to boolean but is {expression} ({type}) instead."
    ),
    "in clause": Entry("Error in {clause} expression: {why}"),
    "CASE condition": Entry("WHEN operand type should be boolean.\nType for '{expression}' is {type}"),
    "CASE of nothing": Entry("Invalid Case expression. All case branches have NULL type"),
    "CASE types": Entry(
        "Invalid Case expression. Type for all 'THEN' clauses should be the same.\n"
        "THEN expression '{expression}' has type: {right}.\nPrevious THEN expression(s) type: {left}."
    ),
    "CASE default type": Entry(
        "Invalid Case expression. Type for the default clause should be the same as for 'THEN' clauses.\n"
        "THEN type: {left}.\nDEFAULT type: {right}."
    ),
    "empty array": Entry(
        "Array constructor cannot be empty. Please supply at least one element " + _ISSUE + "."
    ),
    "array of nothing": Entry(
        "Cannot construct an array with all NULL elements " + _ISSUE + ". As a workaround, you may cast a "
        "NULL value to the desired type."
    ),
    "empty map": Entry(
        "Map constructor cannot be empty. Please supply at least one key value pair " + _ISSUE + "."
    ),
    "map of null keys": Entry(
        "Cannot construct a map with all NULL keys " + _ISSUE + ". As a workaround, you may cast a NULL key "
        "to the desired type."
    ),
    "map of null values": Entry(
        "Cannot construct a map with all NULL values " + _ISSUE + ". As a workaround, you may cast a NULL "
        "value to the desired type."
    ),
    "struct of null": Entry("The field {name} of a struct is NULL: cast it to a type.", located=True),
    "literal of another type": Entry('invalid input syntax for type {type}: "{value}".'),
    "no struct": Entry("Expected STRUCT type, got: {type} ({expression}->{name})", located=True),
    "no struct for star": Entry("{part} {name} is not a STRUCT type.", located=True),
    "no such field": Entry("Could not find field '{name}' in '{expression}'.", located=True),
    "array index": Entry("An array's index has to be an INTEGER or BIGINT, not {type}", located=True),
    "no subscript": Entry("Subscript expression ({expression}) do not apply to {type}.{hint}", located=True),
    "lambda outside": Entry("A lambda can only be an argument of a function.", located=True),
    "lambda parameter twice": Entry(
        "Reusing lambda arguments in nested lambda is not allowed: {name}", located=True
    ),
    "lambda parameter of a column": Entry("Lambda function argument can't be a column name: {name}"),
    "lambda parameter repeated": Entry("Lambda arguments have duplicates: {names}", prefix=_PREPARE),
    "lambda of null": Entry("A lambda has to give a value of some type, not NULL.", located=True),
    "function of another kind": Entry(
        "{expression} is a function of kind {kind}, which has no place here", located=True
    ),
    "aggregate literal": Entry(
        "Parameter {parameter} passed to function {name} must be a literal constant, but was expression: "
        "'{found}'"
    ),
    "select of null": Entry(
        "Can't infer a type of null. Please explicitly cast it to a required type, e.g. CAST(null AS "
        "VARCHAR)."
    ),
}

_NAMES: dict[str, Entry] = {
    "unknown sink": Entry("Unknown source: {name}"),
    "unknown source": Entry("{name} does not exist.", prefix=_PREPARE),
    "unknown alias": Entry("'{name}' is not a valid stream/table name or alias.", prefix=_PREPARE),
    "unknown column": Entry("Unknown column {name}."),
    "unknown column in WHERE": Entry("Error in WHERE expression: Unknown column {name}."),
    "unresolved column": Entry("{clause} column '{name}' cannot be resolved.{hint}", located=True),
    "ambiguous column": Entry(
        "Column '{name}' is ambiguous. Could be {options}.", located=True, prefix=_EXCEPTION
    ),
    "no time": Entry("Failed to parse timestamp '{value}': {why}", located=True),
    "reserved alias": Entry(
        "`{name}` is a reserved column name. You cannot use it as an alias for a column.", located=True
    ),
    "reserved in select": Entry(
        "Reserved column name in select: `{name}`. Please remove or alias the column."
    ),
    "duplicate in select": Entry("Duplicate {side} columns found in schema: {column}", located=True),
    "key missing": Entry(
        "Key missing from projection (ie, SELECT). See https://cnfl.io/2LV7ouS.\nThe query used to build "
        "{sink} must include the {noun} {names} in its projection (eg, SELECT {example}...).{extra}"
    ),
    "foreign key missing": Entry(
        "Primary key {what} missing in projection. For foreign-key table-table joins, the projection must "
        "include all primary key columns from the left input table ({source}). Missing {what}: {names}."
    ),
    "key twice": Entry(
        "The projection contains a key column ({key}) more than once, aliased as: {names}." + _ONCE
    ),
    "key twice in groups": Entry("The projection contains a key column more than once: {names}." + _ONCE),
    "no value columns": Entry("The projection contains no value columns."),
}

_CLAUSES: dict[str, Entry] = {
    "GROUP BY null": Entry("GROUP BY cannot be NULL: it needs a type.", located=True),
    "GROUP BY without aggregates": Entry(
        "GROUP BY requires aggregate functions in either the SELECT or HAVING clause."
    ),
    "aggregate in GROUP BY": Entry(
        "GROUP BY does not support aggregate functions: {name} is an aggregate function."
    ),
    "duplicate GROUP BY": Entry("Duplicate GROUP BY expression: {expression}"),
    "nested aggregates": Entry("Aggregate functions can not be nested: {expression}"),
    "aggregate without GROUP BY": Entry(
        "CREATE {kind} AS SELECT statement does not support aggregate function [{calls}] without a GROUP BY "
        "clause."
    ),
    "not grouped": Entry(
        "Non-aggregate SELECT expression(s) not part of GROUP BY: {expressions}\n"
        "Either add the column(s) to the GROUP BY or remove them from the SELECT."
    ),
    "HAVING not grouped": Entry("Non-aggregate HAVING expression not part of GROUP BY: {expressions}"),
    "HAVING without GROUP BY": Entry("HAVING requires a GROUP BY clause."),
    "order or distinct": Entry(
        "line {line}:{column}: Syntax Error\nORDER BY and DISTINCT need all rows: they are for pull queries "
        "on tables, and for BATCH SELECT."
    ),
    "aggregate without undo": Entry(
        "The aggregation function {names} cannot be applied to a table source, only to a stream source."
    ),
    "aggregates without undo": Entry(
        "The aggregation functions {names} cannot be applied to a table source, only to a stream source."
    ),
    "intermediate type": Entry(
        "One of the functions used in the statement has an intermediate type that the value format can not "
        "handle. Please remove the function or change the format."
    ),
    "window bounds": Entry(
        "Window bounds column {name} can only be used in the SELECT clause of windowed aggregations and can "
        "not be passed to aggregate functions.\nSee https://github.com/confluentinc/ksql/issues/4397"
    ),
    "WINDOW without GROUP BY": Entry("WINDOW clause requires a GROUP BY clause.", located=True),
    "windows of a table": Entry("Windowing not supported for table aggregations."),
    "EMIT FINAL": Entry("EMIT FINAL is only supported for windowed aggregations."),
    "KAFKA format": Entry(
        "Source(s) {names} are using the 'KAFKA' value format. This format does not yet support {what}.\n"
        "As a workaround, copy the source into one of another format first."
    ),
    "result type": Entry(
        "Invalid result type. Your SELECT query produces a {kind}. Please use CREATE {kind} AS SELECT "
        "statement instead."
    ),
    "PARTITION BY of a table": Entry("PARTITION BY is not supported on tables."),
    "PARTITION BY of windows": Entry(_REPARTITION),
    "duplicate PARTITION BY": Entry("Duplicate PARTITION BY expression: {expression}"),
    "PARTITION BY null and more": Entry("Cannot PARTITION BY multiple columns including NULL"),
    "nested table functions": Entry("Table functions cannot be nested: {outer}({inner}())"),
    "table functions in CASE": Entry("Table functions cannot be used in CASE: {expression}"),
    "table functions and aggregates": Entry("Table functions cannot be used with aggregations."),
    "table functions of a table": Entry("Table source is not supported with table functions"),
}

_JOINS: dict[str, Entry] = {
    "self join": Entry("Can not join '{name}' to '{name}': self joins are not yet supported."),
    "source twice": Entry(
        "N-way joins do not support multiple occurrences of the same source. Source: '{name}'."
    ),
    "join condition": Entry("Unsupported join expression: {expression}"),
    "join by order": Entry("Only equality join criteria is supported."),
    "joins of windows": Entry(
        "Incompatible windowed sources.\nLeft source: {left}\nRight source: {right}\nSession windows can be "
        "joined with session windows only, and then bounds have to be the same; hopping and tumbling windows "
        "with each other."
    ),
    "several join conditions": Entry(
        "Invalid join condition: joins on multiple conditions are not yet supported. Got {expression}."
    ),
    "join on null": Entry("A join on NULL finds nothing.", located=True),
    "join side": Entry(
        "Invalid comparison expression '{side}' in join '{condition}'. Each side of the join comparision "
        "must contain references from exactly one source."
    ),
    "join of one source": Entry(
        "Each side of the join must reference exactly one source and not the same source. Left side "
        "references {left} and right references {right}"
    ),
    "join without its source": Entry(
        "A join criteria is expected to reference the source ({source}) in the FROM clause, instead the "
        "right source references {right} and the left source references {left}"
    ),
    "table-stream join": Entry(
        "Invalid join order: table-stream joins are not supported; only stream-table joins. Got {join}."
    ),
    "stream-table outer join": Entry(
        "Invalid join type: full-outer join not supported for stream-table join. Got {join}."
    ),
    "stream-table right join": Entry("Invalid join type encountered: {type}"),
    "no WITHIN": Entry(
        "Stream-Stream joins must have a WITHIN clause specified. None was provided. To learn about how to "
        "specify a WITHIN clause with a stream-stream join, please visit: "
        "https://docs.confluent.io/current/ksql/docs/syntax-reference.html#create-stream-as-select"
    ),
    "WITHIN of a table": Entry(
        "A window definition was provided for a Stream-Table join. These joins are not windowed. Please "
        "drop the window definition (ie. the WITHIN clause) and try to execute your join again."
    ),
    "WITHIN of tables": Entry(
        "A window definition was provided for a Table-Table join. These joins are not windowed. Please drop "
        "the window definition (i.e. the WITHIN clause) and try to execute your Table-Table join again."
    ),
    "join key types": Entry("Invalid join. Key types differ: {left} vs {right}"),
    "repartition of a table": Entry(
        "Cannot repartition a TABLE source. If this is a join, make sure that the criteria uses the TABLE's "
        "key column {key} instead of {expression}"
    ),
    "join on no primary key": Entry(
        "Invalid join condition: table-table joins require to join on the primary key of the right input "
        "table. Got {condition}."
    ),
    "join on no table key": Entry(
        "Invalid join condition: stream-table joins require to join on the table's primary key. Got "
        "{condition}."
    ),
    "join types": Entry(
        "Invalid join condition: types don't match. Got {left}{{{left_type}}} = {right}{{{right_type}}}."
    ),
    "foreign key join type": Entry("{type} JOIN on a foreign key is not supported"),
    "foreign key full join": Entry(
        "Invalid join type: full-outer join not supported for foreign-key table-table join. Got {join}."
    ),
    "foreign key of windows": Entry("Foreign-key table-table joins are not supported on windowed tables."),
    "foreign key in n-way": Entry(
        "Invalid join condition: foreign-key table-table joins are not supported as part of n-way joins. "
        "Got {condition}."
    ),
    "windowed with not": Entry("Can not join windowed source to non-windowed source.\n{left}\n{right}"),
    "windowed repartition": Entry(_REPARTITION),
    "partitions": Entry(
        "Can't join {left} with {right} since the number of partitions don't match. {left} partitions = "
        "{left_count}; {right} partitions = {right_count}. Please repartition either one so that the number "
        "of partitions match."
    ),
}

CATALOGUE: dict[str, Entry] = {
    **_STATEMENTS,
    **_PROPERTIES,
    **_SCHEMAS,
    **_EXPRESSIONS,
    **_NAMES,
    **_CLAUSES,
    **_JOINS,
}
