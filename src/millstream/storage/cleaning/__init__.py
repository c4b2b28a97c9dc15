"""Compaction: a log keeps at least the last record of every key, and nobody notices that it became shorter.

    planning.py              which log is dirtiest, what can be cleaned of it, which segments join (pure)
    offset_map.py            key -> last offset, in memory of a fixed size, and marks for what stays
    batch_records.py         opening a batch, and finding the records in it
    cleaned_transactions.py  what is known of transactions while a log is read from its start
    record_filter.py         what remains of one batch
    segment_reader.py        the bytes of a closed segment, and what is checked of a batch
    key_learner.py           the first reading of a log: every key, and which batches to look at again
    segment_writer.py        the new segment and its indexes, as *.cleaned files
    compacting.py            one log: learn the keys of the dirty part, then rewrite group after group
    throttle.py              a limit on bytes per second
    worker.py                the child process that runs compacting.py; worker_protocol.py is what they say
    cleaner_process.py       the broker's end of that conversation
    swap.py                  a new segment replaces old ones; swap_recovery.py ends that after a crash

The child reads closed segments and writes *.cleaned files, nothing else. The broker alone renames, so the log
has one owner. The rules are Apache Kafka's, and so are the names of the files at each step.
"""
