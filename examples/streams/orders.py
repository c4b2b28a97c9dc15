"""A small order service: a warehouse that decides orders one after the other, and invoices for those it
accepts.

    products     key: product, value: {"name": ..., "price": ...}; whole in every task
    deliveries   key: product, value: {"quantity": ...}: goods that come in
    orders       key: order, value: {"product": ..., "quantity": ..., "customer": ...}
    decisions    key: order, value: the order with "accepted": true or false
    invoices     key: customer, value: what is to be paid for which order
    stock        key: product, value: how many there are now

Orders go by product to the task that knows this product's stock, so two orders can never be given the same
bike. The stock is a store: it can be asked for over HTTP (`serve_queries`), and comes back from its changelog
wherever the task runs next.

python examples/streams/orders.py     feeds some orders through the test driver and prints what comes out
python examples/streams/run.py orders --serve 7070     on Spark; asks for the stock when it is done
"""

from typing import Any

from millstream.streams import Context, Processor, Record, StreamsBuilder, Topology, key_value_store, serdes
from millstream.testing.topology import TopologyTestDriver

RECORDS = [
    ("products", "city", {"name": "City bike", "price": 2_400}, 0),
    ("products", "cargo", {"name": "Cargo bike", "price": 5_100}, 0),
    ("deliveries", "city", {"quantity": 3}, 1_000),
    ("orders", "o1", {"product": "city", "quantity": 2, "customer": "ute"}, 2_000),
    ("orders", "o2", {"product": "city", "quantity": 2, "customer": "max"}, 3_000),
    ("orders", "o3", {"product": "cargo", "quantity": 1, "customer": "ute"}, 4_000),
]
QUESTIONS = ["/stores/stock/keys/city"]


class Warehouse(Processor):
    """Knows how many of each product there are. A delivery adds, an order takes or is refused."""

    def init(self, context: Context) -> None:
        self.stock = context.store("stock")

    def process(self, record: Record) -> None:
        product, wanted = record.key, record.value["quantity"]
        there = self.stock.get(product) or 0
        if "order" not in record.value:
            self.stock.put(product, there + wanted)
        else:
            accepted = wanted <= there
            if accepted:
                self.stock.put(product, there - wanted)
            decision = {**record.value, "product": product, "accepted": accepted}
            self.context.forward(Record(decision.pop("order"), decision, record.timestamp))
        self.context.forward(record.with_value({"left": self.stock.get(product) or 0}))


def build() -> Topology:
    builder = StreamsBuilder(value=serdes.JSON)
    builder.add_store(key_value_store("stock", value=serdes.LONG))
    products = builder.global_table("products")
    orders = builder.stream("orders").map(lambda order, what: (what["product"], {**what, "order": order}))
    work = builder.stream("deliveries").merge(orders.repartition()).process(Warehouse, stores=["stock"])
    levels = work.filter(lambda _, what: "left" in what).map_values(lambda what: what["left"])
    levels.to("stock", value=serdes.LONG)
    decisions = work.filter(lambda _, what: "accepted" in what)
    decisions.to("decisions")
    (
        decisions.filter(lambda _, decision: decision["accepted"])
        .join(products, _invoice, key=lambda _, decision: decision["product"])
        .select_key(lambda _, invoice: invoice["customer"])
        .to("invoices")
    )
    return builder.build()


def _invoice(decision: dict[str, Any], product: dict[str, Any]) -> dict[str, Any]:
    quantity = decision["quantity"]
    what = f"{quantity} x {product['name']}"
    return {"customer": decision["customer"], "for": what, "total": quantity * product["price"]}


def main() -> None:
    driver = TopologyTestDriver(build())
    for topic, key, value, timestamp in RECORDS:
        driver.input_topic(topic).pipe(key, value, timestamp)
    for order, decision in driver.output_topic("decisions").read_key_values():
        print("order  ", order, "accepted" if decision["accepted"] else "refused")
    for customer, invoice in driver.output_topic("invoices").read_key_values():
        print("invoice", customer, invoice["for"], invoice["total"])
    for product, left in driver.output_topic("stock").read_table().items():
        print("stock  ", product, left)


if __name__ == "__main__":
    main()
