"""Logging in: SASL mechanisms as state machines from bytes to bytes, and the connection's state around
them."""
