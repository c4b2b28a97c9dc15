"""Kills in the middle of exactly-once Streams applications, and a check that every input was counted once."""
