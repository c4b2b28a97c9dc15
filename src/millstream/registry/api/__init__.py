"""The registry over HTTP: Confluent's paths, status codes, error codes and media types.

app          the application and what is around every request: contexts in paths, media types, sizes, errors
subjects, schemas, compatibility, settings, contexts    the resources
leading      who may write: here, or at the leader
users        basic authentication and read-only users
"""
