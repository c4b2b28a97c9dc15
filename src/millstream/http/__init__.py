"""What the HTTP services (Schema Registry, REST Proxy, console) have in common.

settings   Confluent's names for listeners, TLS, users, CORS; typed values from --config and --set
serving    the command line, listeners, uvicorn, signals, the `ready` line
tls        HTTPS from Kafka's ssl.* settings
users      basic authentication
bodies     bodies that are too large, answers of a few bytes
metrics    /metrics: requests by route, the process, what a service adds of its own
errors     {"error_code": ..., "message": ...}
"""
