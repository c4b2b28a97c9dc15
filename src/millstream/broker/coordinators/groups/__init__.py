"""The group coordinator: who is a member of which group, who reads which partition, and how far each group has read.

fields, records, consumer_records            the records of `__consumer_offsets`, byte for byte Kafka's
classic, classic_roster, classic_types       a group whose members divide the partitions: a pure state machine
consumer_group, consumer_state, reconcile,   a group whose partitions the coordinator divides: pure as well
consumer_types, assignors, regex
bridge, migration, subscription              groups that move from one protocol to the other
offsets                                      committed offsets, and those of transactions that have not ended
responses                                    answers that are packed by hand
coordinator, consumer_side                   tie them to the log, the clock and the requests
"""
