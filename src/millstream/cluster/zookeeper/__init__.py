"""The metadata log in Apache ZooKeeper: a client of its protocol, and the store on top of it."""
