"""Converters: a key, value or header as Connect has it, to the bytes in a topic and back."""
