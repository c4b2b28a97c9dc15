"""Kafka's settings: one table, and what is made of it.

`table` says what settings there are, `resolve` what counts and where it comes from, `listeners` where the
broker listens, `properties` how the file is written, `render` how all this is shown to people. Imports
nothing else of ours.
"""
