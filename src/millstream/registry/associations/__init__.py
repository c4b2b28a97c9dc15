"""Associations: which subject holds the schemas of a resource, which is a topic.

Confluent's serializers ask here first for the subject of a topic's keys or values, and fall back to the name
of the topic. A WEAK association only names the subject. A STRONG one is created together with its topic and
owns the subject: the subject has no other association, no schema refers to it, and it goes with the topic if
the deletion cascades. An association is frozen, so that it cannot be changed, exactly if it is STRONG.

model       an association, and its record in Confluent's JSON
state       all associations, by subject and by resource
requests    what clients send, checked
commands    what a change writes into the topic
"""
