// An order that is not paid in time is closed. The shop's own record decides; Duetime wakes it.
package main

import (
	"context"
	"duetime.example/go/duetime"
	"fmt"
	"os"
	"time"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	topic := must(duetime.New(os.Getenv("DUETIME_URL"), duetime.Options{})).Topic("orders-go")
	must(topic.Create(ctx, nil))
	open := map[string]bool{"order-1": true, "order-2": true, "order-3": true}
	for order := range open {
		m := duetime.NewMessage{ID: order, Payload: order, Delay: must(time.ParseDuration(os.Getenv("ORDER_TIMEOUT")))}
		must(topic.Enqueue(ctx, m))
	}
	delete(open, "order-2") // It is paid. CancelInFlight would mean that the check is under way; it finds it paid.
	fmt.Println("order-2 paid, its check", must(topic.Cancel(ctx, "order-2")).Outcome)
	check := func(_ context.Context, d *duetime.Delivery) error {
		if order := string(d.Payload); open[order] {
			fmt.Println(order, "closed")
		}
		if delete(open, d.ID); len(open) == 0 {
			stop()
		}
		return nil
	}
	must(0, topic.Consume(ctx, check, duetime.ConsumeOptions{Concurrency: 1})) // 1: the map has no lock.
}
