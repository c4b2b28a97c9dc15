"""The host: one engine on Spark for everything that runs for ever.

A *unit* is a program over partitions: a task of Streams (those of SQL queries are such) or of a connector.
*Lanes* run units, a lane in each Python worker of Spark: they fetch for their units, let them work in
turns and commit what they did, in transactions of the lane or of the unit. The *planner*, beside Spark's
driver, says which lane runs which unit, takes back those of a lane that is gone, and sets a failing unit
aside.

Spark starts, supervises and spreads the lanes. It never knows how far a unit is: that is in the cluster, in
its last transaction, so whatever Spark repeats finds nothing to do.

    unit        what a unit is, and an application
    lane        the loop over the units of one process
    waiting, turns   units that wait for other people's servers, in threads beside the loop
    fetching    one fetch per broker for all units of a lane
    ownership   who may commit for a unit, when a lane commits for many
    progress    markers that outlast the group's offsets
    shared      what the units of a process have in common
    planner, assignment  who runs what: decisions without sockets, threads and clocks
    planner_server   the planner's side of the connections to the lanes
    link        those connections
    source      lanes as the tasks of a Spark query
    local       lanes as threads of this process, for tests
    host        what applications use: add, remove, status
    call_server calls from other processes of this machine
    control, driver   the same from another process: services that share a driver child
    metrics     what units do, for Prometheus and in __millstream_pipelines
"""
