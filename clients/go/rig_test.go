package duetime

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// What is awaited is seen within this time, or the test fails.
const seenMax = 30 * time.Second

var (
	numbers atomic.Int64
	ctx     = context.Background()
)

// until waits until something is seen.
func until(t *testing.T, what string, seen func() bool) {
	t.Helper()
	for end := time.Now().Add(seenMax); !seen(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not seen within %v: %s", seenMax, what)
		}
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func equal(t *testing.T, got, wanted any) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(wanted); g != w {
		t.Fatalf("got %s, wanted %s", g, w)
	}
}

// seen is a request that the proxy saw.
type seen struct {
	Method, Path, Body, Fault string
	Headers                   map[string]string
	Status                    int
}

func (s seen) receipts() []string {
	var body struct{ Receipts, Ack []string }
	_ = json.Unmarshal([]byte(s.Body), &body)
	return append(body.Receipts, body.Ack...)
}

// rig has a client behind the proxy that clients/rig/with_node.py started, a topic of its own for each test, and the
// faults of the proxy.
type rig struct {
	t     *testing.T
	topic *Topic
	// The same topic, past the proxy.
	beside *Topic
}

func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	if os.Getenv("DUETIME_URL") == "" {
		t.Fatal("DUETIME_URL is not set: run the tests with clients/test")
	}
	name := fmt.Sprintf("go-%d-%d", os.Getpid(), numbers.Add(1))
	node := must(New(os.Getenv("DUETIME_URL"), o))
	direct := must(New(os.Getenv("DUETIME_DIRECT"), Options{}))
	return &rig{t: t, topic: node.Topic(name), beside: direct.Topic(name)}
}

// made is a rig whose topic is there, with messages that are due.
func made(t *testing.T, count int, settings Settings) *rig {
	t.Helper()
	r := newRig(t, Options{})
	r.create(settings)
	var messages []NewMessage
	for n := 0; n < count; n++ {
		messages = append(messages, NewMessage{ID: fmt.Sprintf("m-%d", n), Payload: map[string]int{"n": n}})
	}
	for _, result := range must(r.beside.EnqueueMany(ctx, messages)) {
		equal(t, result.Value.Outcome, EnqueueScheduled)
	}
	return r
}

func (r *rig) create(settings Settings) {
	all := Settings{"shards": 2, "retry": map[string]any{"initial": "100ms", "jitter": 0}}
	for name, value := range settings {
		all[name] = value
	}
	must(r.beside.Create(ctx, all))
}

// fault does something to the next requests about this topic whose path has path in it.
func (r *rig) fault(do, path string, more map[string]any) {
	fault := map[string]any{"do": do, "path": "/v1/topics/" + r.topic.Name + path}
	for name, value := range more {
		fault[name] = value
	}
	r.control("/faults", []any{fault}, nil)
}

func (r *rig) nodeDoes(what string) { r.control("/node", map[string]string{"do": what}, nil) }

// requests are those about this topic that the proxy saw.
func (r *rig) requests(path string) []seen {
	var found []seen
	r.control("/requests?path="+url.QueryEscape("/v1/topics/"+r.topic.Name+path), nil, &found)
	return found
}

// receipts are those in the requests that the proxy saw.
func (r *rig) receipts(path string) (all []string) {
	for _, request := range r.requests(path) {
		all = append(all, request.receipts()...)
	}
	return all
}

// ids are those of the messages in the arrays that the proxy saw.
func (r *rig) ids(path string) (all [][]string) {
	for _, request := range r.requests(path) {
		var messages []struct{ ID string }
		_ = json.Unmarshal([]byte(request.Body), &messages)
		var ids []string
		for _, message := range messages {
			ids = append(ids, message.ID)
		}
		all = append(all, ids)
	}
	return all
}

func (r *rig) isEmpty() bool {
	info := must(r.beside.Info(ctx))
	return info.Scheduled+info.InFlight+info.Dead == 0
}

func (r *rig) control(path string, body, to any) {
	address := os.Getenv("DUETIME_CONTROL") + path
	var answer *http.Response
	if body == nil {
		answer = must(http.Get(address))
	} else {
		answer = must(http.Post(address, jsonType, bytes.NewReader(must(json.Marshal(body)))))
	}
	defer answer.Body.Close()
	if to != nil {
		if err := json.NewDecoder(answer.Body).Decode(to); err != nil {
			panic(err)
		}
	}
}

// list is a list that goroutines share.
type list[T any] struct {
	mu  sync.Mutex
	all []T
}

func (l *list[T]) add(value T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, value)
}

func (l *list[T]) get() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]T(nil), l.all...)
}

// running is a consumer under test.
type running struct {
	lost   list[SettleOutcome]
	errors list[error]
	cancel context.CancelFunc
	ended  chan error
}

func (r *rig) consume(handler Handler, o ConsumeOptions) *running {
	c := &running{ended: make(chan error, 1)}
	var stopping context.Context
	stopping, c.cancel = context.WithCancel(ctx)
	o.OnLost = func(_ *Delivery, outcome SettleOutcome) { c.lost.add(outcome) }
	o.OnError = func(err error, _ *Delivery) { c.errors.add(err) }
	if o.Wait == 0 {
		o.Wait = time.Second
	}
	go func() { c.ended <- r.topic.Consume(stopping, handler, o) }()
	return c
}

// stop stops the consumer and waits for its end.
func (c *running) stop() error {
	c.cancel()
	return <-c.ended
}
