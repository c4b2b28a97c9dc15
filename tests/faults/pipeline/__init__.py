"""Kills in the middle of exactly-once pipelines, and a check that every input had its effect once."""
