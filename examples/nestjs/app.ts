// Orders that are closed if they are not paid in time. Duetime calls POST /due for each check that is due.
//
//     DUETIME_URL=http://127.0.0.1:3830 WEBHOOK_SECRET=whsec_… PORT=8000 node app.js
//
// The node has a sink `shop` with `url = "http://…:8000/due"` and the same secret; see ../README.md. The orders are
// in memory, for the sake of a short file: a shop has them in a database, and `change` is one UPDATE there.

import "reflect-metadata";
import {
  ConflictException,
  Controller,
  Get,
  HttpCode,
  Injectable,
  Logger,
  Module,
  NotFoundException,
  type OnModuleInit,
  Param,
  Post,
  Put,
  type RawBodyRequest,
  Req,
  UnauthorizedException,
} from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import type { NestExpressApplication } from "@nestjs/platform-express";
import { Duetime, type Duration, DuetimeError, InvalidSignature, verify } from "duetime";
import type { IncomingMessage } from "node:http";

const timeout = (process.env.ORDER_TIMEOUT ?? "30m") as Duration;
// Several, with spaces between them, while one is changed.
const secrets = process.env.WEBHOOK_SECRET!.split(" ");

interface Order {
  order: string;
  state: "open" | "paid" | "closed";
}

@Injectable()
class Orders implements OnModuleInit {
  readonly #orders = new Map<string, Order["state"]>();
  // retryForMs: a customer's request waits no longer than this for a node that is away.
  readonly #checks = new Duetime(process.env.DUETIME_URL!, {
    ...(process.env.DUETIME_TOKEN ? { token: process.env.DUETIME_TOKEN } : {}),
    retryForMs: 3000,
  }).topic("shop-orders");

  async onModuleInit(): Promise<void> {
    await this.#checks.create({ sink: { name: "shop" } });
  }

  show(order: string): Order {
    const state = this.#orders.get(order);
    if (!state) throw new NotFoundException();
    return { order, state };
  }

  /** Changes an order that is open, and no other: a second call, or a late one, does nothing. */
  change(order: string, state: Order["state"]): void {
    if (this.#orders.get(order) === "open") this.#orders.set(order, state);
  }

  async place(order: string): Promise<Order> {
    // The check first: a check without its order does nothing, an order without a check stays open. Without an answer
    // of the node this request fails and is repeated; then the check is a `duplicate`.
    await this.#checks.enqueue({ order }, { id: order, delay: timeout });
    if (!this.#orders.has(order)) this.#orders.set(order, "open");
    return this.show(order);
  }

  async pay(order: string): Promise<Order> {
    this.change(order, "paid");
    if (this.#orders.get(order) === "closed") throw new ConflictException("the order is closed");
    try {
      await this.#checks.cancel(order);
    } catch (error) {
      if (!(error instanceof DuetimeError)) throw error;
      // The record is what counts: the check finds the order paid.
      Logger.warn(`the check of ${order} is not cancelled: ${error.message}`);
    }
    return this.show(order);
  }
}

@Controller()
class Shop {
  constructor(private readonly orders: Orders) {}

  @Get("orders/:order")
  show(@Param("order") order: string): Order {
    return this.orders.show(order);
  }

  @Put("orders/:order")
  place(@Param("order") order: string): Promise<Order> {
    return this.orders.place(order);
  }

  @Post("orders/:order/payment")
  @HttpCode(200)
  pay(@Param("order") order: string): Promise<Order> {
    return this.orders.pay(order);
  }

  @Post("due")
  @HttpCode(204)
  async due(@Req() request: RawBodyRequest<IncomingMessage>): Promise<void> {
    const body = request.rawBody ?? Buffer.alloc(0);
    try {
      await verify(body, request.headers, secrets);
    } catch (error) {
      if (!(error instanceof InvalidSignature)) throw error;
      throw new UnauthorizedException(error.message);
    }
    this.orders.change((JSON.parse(body.toString()) as Order).order, "closed");
  }
}

@Module({ controllers: [Shop], providers: [Orders] })
class AppModule {}

// The signature is one of bytes: keep the body as it came, of whatever type it is.
const app = await NestFactory.create<NestExpressApplication>(AppModule, { rawBody: true });
app.useBodyParser("raw", { type: () => true, limit: "1mb" });
app.enableShutdownHooks();
await app.listen(Number(process.env.PORT ?? 8000), "127.0.0.1");
