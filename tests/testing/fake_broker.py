"""Stands in for the broker: it listens, says `ready` and obeys SIGTERM, or misbehaves as its settings ask."""

import os
import signal
import socket
import sys
import time

from millstream.up.parent_process import end_with_parent

settings = dict(argument.split("=", 1) for argument in sys.argv[1:] if argument != "--set")
end_with_parent(grace=0)
if "fake.exit" in settings:
    print("no room at the inn", file=sys.stderr)
    sys.exit(int(settings["fake.exit"]))
if settings.get("fake.silent"):
    time.sleep(60)
if settings.get("fake.stubborn"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(int(settings.get("fake.stop.code", 0))))

host, port = settings["listeners"].removeprefix("PLAINTEXT://").split(":")
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((host, int(port)))
listener.listen()
with open(os.path.join(settings["log.dirs"], "starts"), "a") as starts:
    starts.write(f"{os.getpid()}\n")
print("warming up: not yet", flush=True)
print(f"ready id=1 listeners=PLAINTEXT://{host}:{listener.getsockname()[1]} after=0.1s", flush=True)
while True:
    connection, _ = listener.accept()
    connection.sendall(str(os.getpid()).encode())
    connection.close()
