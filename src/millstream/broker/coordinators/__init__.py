"""Group and transaction coordinators, and the runtime that keeps their state in internal topics."""
