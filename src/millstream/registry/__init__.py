"""Schema Registry: Confluent's REST API over the compacted topic `_schemas`, a client of any Kafka-compatible
broker. The schema languages themselves are in `millstream.schemas`.

contexts         subjects and the contexts that they live in
schema_records   the records of the topic, in Confluent's JSON
state, queries   everything that the topic says, in memory; questions about it
requests, commands   what clients send, checked; what a change writes into the topic
schemas_topic, topic_log   the topic; a topic replayed into a state, to which the leader writes
election         one leader among several instances, by Kafka group membership
service          a running registry: state, topics, leadership, one writer at a time
associations/    which subjects hold the schemas of a topic
dek/             keys for client-side field-level encryption
api/             the HTTP side
main             `millstream registry`
"""
