"""What the HTTP services (Schema Registry, REST Proxy, console) have in common.

service_main     the command of a service: its options, its configuration, its run
service_config   configuration keys under Confluent's names, and their typed values
upgrades         offers of other protocols, which are ignored
serving          listeners, uvicorn, signals, the `ready` line
app              the FastAPI application: routers, errors, and what surrounds them
openapi          what the OpenAPI page says beside FastAPI's own
negotiation      Content-Type and Accept
response_headers headers that an operator adds to every response
bodies           bodies that are too large, responses from outside the application
authentication   users of a file, CORS
cluster_authentication  callers who are users of the cluster
cluster_login    who a caller is, by a login at a broker
lasting_requests streams that end when their caller may no longer read them
login_failures   wrong passwords, by name and address
browser_guard    what other sites' pages may have a browser do
host_names       the names under which browsers may reach a service
tls              HTTPS from Kafka's ssl.* settings
metrics          /metrics: requests by route, the process, what a service adds of its own
errors           {"error_code": ..., "message": ...}
"""
