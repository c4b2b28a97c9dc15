"""The operators: plain descriptions that build into functions. See `base`."""
