"""The connectors that come with Millstream."""
