"""The host: one engine on Spark for everything that runs for ever.

A *unit* is a program over partitions: a Streams task, later a task of a SQL statement, of a connector, of a
mirror. *Lanes* run units, a lane in each Python worker of Spark: they fetch for their units, let them work in
turns and commit what they did, each unit in transactions of its own. The *planner*, beside Spark's driver,
says which lane runs which unit, takes back those of a lane that is gone, and sets a failing unit aside.

Spark starts, supervises and spreads the lanes. It never knows how far a unit is: that is in the cluster, in
the unit's last transaction, so whatever Spark repeats finds nothing to do.

    unit        what a unit is
    lane        the loop over the units of one process
    fetching    one fetch per broker for all units of a lane
    planner     who runs what: decisions without sockets, threads and clocks
    planner_server   the planner's side of the connections to the lanes
    link        those connections
    source      lanes as the tasks of a Spark query
    local       lanes as threads of this process, for tests
    host        what applications use: add, remove, status
"""
