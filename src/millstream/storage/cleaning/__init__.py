"""Compaction: a log keeps at least the last record of every key, and nobody notices that it became shorter.

    planning.py      which log is dirtiest, from where to where it can be cleaned, which segments are joined   (pure)
    keymap.py        key -> last offset, in memory of a fixed size
    opening.py       finding the records inside a batch
    undecided.py     what is known of transactions while a log is read from its start
    filtering.py     what remains of one batch
    reading.py       the batches of a closed segment, checked
    writing.py       the new segment and its indexes, as *.cleaned files
    compacting.py    one log: learn the keys of the dirty part, then rewrite group after group of segments
    throttle.py      so many bytes a second and no more
    worker.py        the child process that runs compacting.py; messages.py is what it and the broker say to each other
    child.py         the broker's end of that conversation
    swap.py          putting a new segment into a living log; leftovers.py finishes or undoes that after a crash

The child reads closed segments and writes *.cleaned files, nothing else. The broker alone renames, so the log has one
owner. The rules are Apache Kafka's, and so are the names of the files at each step.
"""
