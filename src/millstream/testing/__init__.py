"""A real Millstream broker inside your tests.

    from millstream.testing import Broker

    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

The broker is a child process on a free port of 127.0.0.1 with its data in a temporary folder. It ends with
the process that started it, however that process ends. For pytest there is the fixture `millstream_broker`
(see pytest_plugin.py).
"""

from millstream.testing._broker import Broker, BrokerFailed

__all__ = ["Broker", "BrokerFailed"]
