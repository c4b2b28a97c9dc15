"""Datagen: records made up by a schema, for tests and demonstrations."""
