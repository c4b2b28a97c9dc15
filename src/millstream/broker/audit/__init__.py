"""The audit log: who did what, from where, and whether he was allowed to."""
