"""The registry over HTTP: Confluent's paths, status codes, error codes and media types.

app, middleware   the application, and what happens to every request: contexts in paths, media types, sizes
subjects, schemas, compatibility, config_and_mode, contexts, associations, deks   the resources
forwarding        who may write: here, or at the leader
cache             responses to GET requests, kept until the next change
"""

from millstream.registry.api import convertors as convertors  # the resources' routes use its convertor
