"""What the HTTP services (Schema Registry, REST Proxy) have in common.

settings   Confluent's names for listeners, TLS, users, CORS; typed values from --config and --set
serving    the command line, listeners, uvicorn, signals, the `ready` line
tls        HTTPS from Kafka's ssl.* settings
users      basic authentication
bodies     bodies that are too large, answers of a few bytes
errors     {"error_code": ..., "message": ...}
"""
