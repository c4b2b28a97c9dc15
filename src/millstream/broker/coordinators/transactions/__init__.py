"""Transactions: what the log of `__transaction_state` says, the rules, and who carries them out."""
