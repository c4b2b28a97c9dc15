"""Orders by event sourcing, with a view to read from (CQRS).

    commands   key: order, value: {"do": "place" | "pay" | "cancel", ...}: what users want
    events     key: order, value: {"was": "placed" | "paid" | "cancelled" | "refused", ...}: what happened
    orders     key: order, value: the order as it is now: the view, which can be rebuilt from the events at
               any time
    revenue    key: customer, value: what they have paid for and not cancelled

The service decides a command by the state of its order and writes an event; the views follow from the events
alone. Commands go in by a topic, questions go to the views, over HTTP: they are stores of the application,
which another process serves (`serve_queries`).

python examples/streams/event_sourcing.py     feeds some commands through the test driver and prints what
                                              comes out
python examples/streams/run.py event_sourcing --serve 7070     on Spark; asks the QUESTIONS below when it is
                                                               done
"""

from typing import Any

from millstream.streams import Context, Processor, Record, StreamsBuilder, Topology, key_value_store, serdes
from millstream.testing.topology import TopologyTestDriver

ALLOWED = {("place", None): "placed", ("pay", "placed"): "paid", ("cancel", "placed"): "cancelled"}
ALLOWED |= {("cancel", "paid"): "cancelled"}


COMMANDS = [
    ("o1", {"do": "place", "customer": "ute", "amount": 30}),
    ("o2", {"do": "place", "customer": "ute", "amount": 12}),
    ("o1", {"do": "pay"}),
    ("o2", {"do": "pay"}),
    ("o2", {"do": "pay"}),
    ("o1", {"do": "cancel"}),
]
QUESTIONS = ["/stores/orders/keys/o1", "/stores/orders/keys?first=o2", "/stores/revenue/keys/ute"]
RECORDS = [("commands", order, command, number) for number, (order, command) in enumerate(COMMANDS)]


class Service(Processor):
    """Knows the state of every order, and nothing else."""

    def init(self, context: Context) -> None:
        self.states = context.store("states")

    def process(self, record: Record) -> None:
        command = dict(record.value)
        wanted = command.pop("do")
        happened = ALLOWED.get((wanted, self.states.get(record.key)))
        if happened is None:
            self.context.forward(record.with_value({"was": "refused", "command": wanted}))
        else:
            self.states.put(record.key, happened)
            self.context.forward(record.with_value({"was": happened, **command}))


def apply(_order: str, event: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """An order after an event."""
    return state if event["was"] == "refused" else {**state, **event}


def build() -> Topology:
    builder = StreamsBuilder(value=serdes.JSON)
    builder.add_store(key_value_store("states"))
    events = builder.stream("commands").process_values(Service, stores=["states"]).through("events")
    orders = events.group_by_key().aggregate(dict, apply, materialized="orders")
    orders.to_stream().to("orders")
    (
        orders.filter(lambda _, order: order.get("was") == "paid")
        .group_by(lambda _, order: (order["customer"], order["amount"]), value=serdes.LONG)
        .reduce(
            lambda total, amount: total + amount,
            lambda total, amount: total - amount,
            materialized="revenue",
        )
        .to_stream()
        .to("revenue", value=serdes.LONG)
    )
    return builder.build()


def main() -> None:
    driver = TopologyTestDriver(build())
    for topic, key, value, timestamp in RECORDS:
        driver.input_topic(topic).pipe(key, value, timestamp)
    for order, event in driver.output_topic("events").read_key_values():
        print("event  ", order, event["was"])
    for order, state in driver.output_topic("orders").read_table().items():
        print("order  ", order, state["was"], state["customer"], state["amount"])
    for customer, revenue in driver.output_topic("revenue").read_key_values():
        print("revenue", customer, revenue)


if __name__ == "__main__":
    main()
