// A test that does not wait: the clock of a node for tests is moved ahead.
//
//	duetime serve --test-clock &
//	DUETIME_URL=http://127.0.0.1:3830 go run .
package main

import (
	"context"
	"duetime.example/go/duetime"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func advance(by string) {
	body := strings.NewReader(`{"advance": "` + by + `"}`)
	answer := must(http.Post(os.Getenv("DUETIME_URL")+"/v1/test-clock", "application/json", body))
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		panic(answer.Status)
	}
}

func main() {
	ctx := context.Background()
	topic := must(duetime.New(os.Getenv("DUETIME_URL"), duetime.Options{})).Topic("orders-go")
	must(topic.Create(ctx, nil))
	must(topic.Enqueue(ctx, duetime.NewMessage{ID: "order-1", Payload: "close it", Delay: 30 * time.Minute}))
	advance("29m")
	fmt.Println("after 29 minutes:", len(must(topic.Claim(ctx, 1, 0, 0)).Messages))
	advance("1m")
	// What falls due by a move is there at once; the wait is for a machine that is slow.
	fmt.Println("after 30 minutes:", len(must(topic.Claim(ctx, 1, 10*time.Second, 0)).Messages))
}
