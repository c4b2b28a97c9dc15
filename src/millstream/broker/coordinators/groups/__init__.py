"""The group coordinator: who is in which group, who reads which partition, and how far each group has read.

coordinator                               the service: join, sync, heartbeat, leave, commit, describe, delete
group_shard, offsets                      groups and offsets of one partition of `__consumer_offsets`
group, group_timer, group_settings        what both protocols share
classic_group_manager                     carries out what classic groups decide
classic_group, classic_rebalance,         a group whose members divide the partitions: a pure state machine
  classic_members, classic_types
consumer_group_manager                    carries out what groups of the consumer protocol (KIP-848) decide
consumer_group, consumer_state,           a group whose partitions the coordinator divides: pure as well
  consumer_types, reconcile, assignors
classic_adapter, migration, subscription  groups that move from one protocol to the other
offset_records, consumer_group_records    the records of `__consumer_offsets`, byte for byte Kafka's
responses                                 answers that are packed by hand
"""
