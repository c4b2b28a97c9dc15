"""Tables of databases as sources and sinks: SQLite, PostgreSQL, MySQL and MariaDB.

Settings, class names, offsets and record formats are those of Confluent's and Aiven's JDBC connectors, URLs
are JDBC's; what talks to the database are Python's drivers.
"""
