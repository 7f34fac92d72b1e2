// Orders that are closed if they are not paid in time. Duetime calls POST /due for each check that is due.
//
//     DUETIME_URL=http://127.0.0.1:3830 WEBHOOK_SECRET=whsec_… PORT=8000 node app.mjs
//
// The node has a sink `shop` with `url = "http://…:8000/due"` and the same secret; see ../README.md. The orders are
// in memory, for the sake of a short file: a shop has them in a database, and `change` is one UPDATE there.

import { Duetime, DuetimeError, InvalidSignature, verify } from "duetime";
import express from "express";

const timeout = process.env.ORDER_TIMEOUT ?? "30m";
// Several, with spaces between them, while one is changed.
const secrets = process.env.WEBHOOK_SECRET.split(" ");
const orders = new Map();

// retryForMs: a customer's request waits no longer than this for a node that is away.
const duetime = new Duetime(process.env.DUETIME_URL, { token: process.env.DUETIME_TOKEN, retryForMs: 3000 });
const checks = duetime.topic("shop-orders");
await checks.create({ sink: { name: "shop" } });

/** Changes an order that is open, and no other: a second call, or a late one, does nothing. */
function change(order, state) {
  if (orders.get(order) === "open") orders.set(order, state);
}

function show(order, response) {
  if (!orders.has(order)) return response.sendStatus(404);
  response.json({ order, state: orders.get(order) });
}

const app = express();

app.get("/orders/:order", (request, response) => show(request.params.order, response));

app.put("/orders/:order", async (request, response) => {
  const { order } = request.params;
  // The check first: a check without its order does nothing, an order without a check stays open. Without an answer of
  // the node this request fails and is repeated; then the check is a `duplicate`.
  await checks.enqueue({ order }, { id: order, delay: timeout });
  if (!orders.has(order)) orders.set(order, "open");
  show(order, response);
});

app.post("/orders/:order/payment", async (request, response) => {
  const { order } = request.params;
  change(order, "paid");
  if (orders.get(order) === "closed") return response.sendStatus(409);
  try {
    await checks.cancel(order);
  } catch (error) {
    if (!(error instanceof DuetimeError)) throw error;
    // The record is what counts: the check finds the order paid.
    console.warn(`the check of ${order} is not cancelled: ${error.message}`);
  }
  show(order, response);
});

// The signature is one of bytes, so the body is not parsed before.
app.post("/due", express.raw({ type: () => true, limit: "1mb" }), async (request, response) => {
  try {
    await verify(request.body, request.headers, secrets);
  } catch (error) {
    if (!(error instanceof InvalidSignature)) throw error;
    return response.status(401).send(error.message);
  }
  change(JSON.parse(request.body.toString()).order, "closed");
  response.sendStatus(204);
});

const server = app.listen(Number(process.env.PORT ?? 8000), "127.0.0.1");
process.on("SIGTERM", () => server.close());
