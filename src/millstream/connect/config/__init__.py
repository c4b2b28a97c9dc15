"""The settings of a connector, a converter, a transform: one table for each, Kafka's `ConfigDef`."""
