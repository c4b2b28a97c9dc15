"""Replicas of a partition on several brokers: followers copy, leaders count them, ISRs follow."""
