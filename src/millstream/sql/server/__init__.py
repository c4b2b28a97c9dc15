"""The SQL server: ksqlDB's REST API over a catalog that all servers of a service share."""
