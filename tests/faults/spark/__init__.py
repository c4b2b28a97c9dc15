"""Kills in the middle of exactly-once work on Spark, and a check that every input had its effect once.

run       the command: what it prints, what it keeps
harness   one run: broker, input, application, kills, catching up, verdict; the same for every subject
chaos     what goes wrong, by a seed
driver    the application's tree of processes: started, killed in parts or whole
feed      the input
supervise how an application runs its query again and again
pipeline, streams, services   the subjects: what runs, and what must be true in the end (SQL, Connect)
pipeline_app, streams_app, service_app   the programs that are killed
"""
