"""Sinks that speak HTTP, and what they have in common."""
