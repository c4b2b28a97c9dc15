"""Sockets to requests and back: listeners, the poller, connections, and the dispatch of requests to their
APIs."""
