"""`millstream up`: the services of the platform as processes under one supervisor.

    services            the table: what there is, how it is started, on which port, when it is ready
    ports               choosing ports, keeping them, and naming who has one that we want
    data_folders        the data folder of one `up`: lock, state file, logs; and finding the ones that run
    forking             HTTP services come from one process that has loaded what they share
    parent_process      a child process that ends with its parent
    service_child       the first code in every service's process: it ends with its supervisor
    supervised_service  one service: start, ready, end, start again after a pause that doubles
    supervisor          all of them, until a signal

A service is a subcommand of `millstream`; the supervisor knows nothing of what it does. A new service is a
new row.
"""
