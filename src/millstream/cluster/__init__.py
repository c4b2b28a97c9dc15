"""Who leads what: the metadata log, its image in memory, its store, and the controller that alone writes
it."""
