// An order that is not paid in time is closed. The shop's own record decides; Duetime wakes it.
//
//     DUETIME_URL=http://127.0.0.1:3830 bun order_service.ts

import { Duetime, type Duration } from "duetime";

const timeout = (process.env.ORDER_TIMEOUT ?? "30m") as Duration;
const orders = new Map<string, string>();
const stopping = new AbortController();
process.on("SIGTERM", () => stopping.abort());

const topic = new Duetime(process.env.DUETIME_URL!).topic("orders-typescript");
await topic.create({ visibility_timeout: "30s" });

for (const order of ["order-1", "order-2", "order-3"]) {
  orders.set(order, "open");
  await topic.enqueue({ order }, { id: order, delay: timeout });
}

orders.set("order-2", "paid");
// `in_flight` would mean that the check is under way; it finds the order paid.
console.log("order-2 paid, its check", (await topic.cancel("order-2")).outcome);

await topic.consume(
  (delivery) => {
    const { order } = delivery.payload.json<{ order: string }>();
    if (orders.get(order) === "open") {
      orders.set(order, "closed");
      console.log(order, "closed");
    }
    if (![...orders.values()].includes("open")) stopping.abort();
  },
  { concurrency: 20, signal: stopping.signal },
);
