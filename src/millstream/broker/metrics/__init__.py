"""The page of `/metrics`: what the broker counts and measures."""
