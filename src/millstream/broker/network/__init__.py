"""Sockets to requests and back: listeners, the poller, connections, and the dispatch of each request to its API."""
