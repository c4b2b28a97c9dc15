"""A task at work: a unit of the host (`millstream.host`), around a connector's own task.

task_spec     what a task is made of; travels to where it runs
tolerance     what becomes of a record that cannot be processed: tried again, left out, or the task fails
dead_letters  records that were left out, in a topic, with what went wrong
pipeline      transforms and converters of one connector
source_unit   polls, writes records and offsets in one transaction
sink_unit     puts, flushes, commits the group's offsets
offset_records   a source's offsets, in Kafka's topic and format
"""
