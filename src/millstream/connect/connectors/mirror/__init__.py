"""MirrorMaker 2's three connectors: topics of another cluster, checkpoints of its groups, and heartbeats."""
