"""Change capture from PostgreSQL: rows as they are changed, in Debezium's form."""
