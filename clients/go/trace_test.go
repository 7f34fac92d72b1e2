package duetime

import (
	"context"
	"net/http"
	"testing"
	"time"
)

const (
	producer = "00-11111111111111111111111111111111-2222222222222222-01"
	state    = "shop=7"
)

// spanKey is where this test keeps the headers of a span; OpenTelemetry has a key of its own.
type spanKey struct{}

var traced = Options{
	Inject: func(ctx context.Context, headers http.Header) {
		if span, ok := ctx.Value(spanKey{}).([2]string); ok {
			headers.Set("traceparent", span[0])
			headers.Set("tracestate", span[1])
		}
	},
	Extract: func(ctx context.Context, headers http.Header) context.Context {
		return context.WithValue(ctx, spanKey{}, [2]string{headers.Get("traceparent"), headers.Get("tracestate")})
	},
}

func TestARequestCarriesTheTraceOfItsContextAndAHandlerIsInTheTraceOfItsMessage(t *testing.T) {
	r := newRig(t, traced)
	r.create(nil)
	inTrace := context.WithValue(ctx, spanKey{}, [2]string{producer, state})
	must(r.topic.Enqueue(inTrace, NewMessage{ID: "traced"}))
	must(r.topic.Enqueue(ctx, NewMessage{ID: "alone"}))
	sent := r.requests("/messages")
	equal(t, []string{sent[0].Headers["traceparent"], sent[0].Headers["tracestate"]}, []string{producer, state})
	equal(t, sent[1].Headers["traceparent"], "")

	var seen list[string]
	consumer := r.consume(func(ctx context.Context, d *Delivery) error {
		span, _ := ctx.Value(spanKey{}).([2]string)
		seen.add(d.ID + " " + span[0] + " " + span[1])
		_, err := d.Ack(ctx)
		return err
	}, ConsumeOptions{Concurrency: 1, Visibility: 10 * time.Second})
	until(t, "both are handled", func() bool { return len(seen.get()) == 2 })
	must(0, consumer.stop())
	for _, wanted := range []string{"traced " + producer + " " + state, "alone  "} {
		if all := seen.get(); all[0] != wanted && all[1] != wanted {
			t.Fatalf("%q is not in %q", wanted, all)
		}
	}
	var acks []string
	for _, ack := range r.requests("/ack") {
		acks = append(acks, ack.Headers["traceparent"])
	}
	if len(acks) != 2 || acks[0]+acks[1] != producer {
		t.Fatalf("acks were sent in %q", acks)
	}
}

func TestATracestateGoesOnlyWithTheSpanThatItBelongsTo(t *testing.T) {
	tr := &transport{extract: traced.Extract}
	headers := map[string]string{"traceparent": producer, "tracestate": state}
	own := "00-33333333333333333333333333333333-4444444444444444-01"
	for given, wanted := range map[string]string{producer[:len(producer)-1] + "0": state, own: ""} {
		found := tr.inTraceOf(ctx, ClaimedMessage{Traceparent: given, Headers: headers}).Value(spanKey{}).([2]string)
		equal(t, found, [2]string{given, wanted})
	}
}
