"""One partition's log on disk: segments, indexes, producers, epochs, recovery. Knows nothing of networks or
roles."""
