"""The test kit that users import: millstream.testing."""
