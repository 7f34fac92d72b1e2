// A test that does not wait: the clock of a node for tests is moved ahead.
//
//     duetime serve --test-clock &
//     DUETIME_URL=http://127.0.0.1:3830 bun moved_clock.ts

import { Duetime } from "duetime";

const url = process.env.DUETIME_URL!;

async function advance(by: string): Promise<void> {
  const headers = { "content-type": "application/json" };
  const body = JSON.stringify({ advance: by });
  const answer = await fetch(`${url}/v1/test-clock`, { method: "POST", headers, body });
  if (!answer.ok) throw new Error(await answer.text());
}

const topic = new Duetime(url).topic("orders-typescript");
await topic.create();
await topic.enqueue("close it", { id: "order-1", delay: "30m" });
await advance("29m");
console.log("after 29 minutes:", (await topic.claim()).length);
await advance("1m");
// What falls due by a move is there at once; the wait is for a machine that is slow.
console.log("after 30 minutes:", (await topic.claim(1, { waitMs: 10_000 })).length);
