"""Three brokers and three ZooKeepers as processes, and what happens to them."""
