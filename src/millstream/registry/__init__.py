"""Schema Registry: Confluent's REST API over the compacted topic `_schemas`, a client of any Kafka-compatible
broker.

formats/     the three schema languages: parse, canonical form, normal form, compatibility
contexts     subjects and the contexts that they live in
records      the records of the topic, in Confluent's JSON
state        everything that the topic says, in memory
topic        reads the topic to its end and after, writes to it, waits until what it wrote came back
dek/         keys for client-side field-level encryption
topic_log    a topic replayed into a state; the leader writes to it
election     one leader among several instances, by Kafka group membership
service      what a request means: checks, decisions, one writer at a time
api/         the HTTP side
main         `millstream registry`
"""
