package duetime

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// answering is a client whose requests are answered, one after the other, by these bodies with the status and the
// id "r-1"; an empty one is no answer. It keeps the ids that it was sent.
func answering(o Options, status int, kind string, bodies ...string) (*Topic, *[]string) {
	ids := &[]string{}
	o.HTTP = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		*ids = append(*ids, strings.Join(r.Header.Values("x-request-id"), " and "))
		body := bodies[0]
		bodies = bodies[1:]
		if body == "" {
			return nil, errors.New("cut")
		}
		headers := http.Header{"Content-Type": {kind}, "X-Request-Id": {"r-1"}}
		return &http.Response{StatusCode: status, Header: headers, Body: io.NopCloser(strings.NewReader(body))}, nil
	})}
	return must(New("http://node", o)).Topic("orders"), ids
}

type idKey struct{}

func TestTheIDOfARequestIsTheSameForAllTriesAndInTheTextOfItsError(t *testing.T) {
	calls := 0
	o := Options{RequestID: func(ctx context.Context) string {
		calls++
		return ctx.Value(idKey{}).(string)
	}}
	within := context.WithValue(ctx, idKey{}, "shop-1")
	topic, ids := answering(o, 409, "application/problem+json", "", `{"code":"x","detail":"no"}`)
	_, err := topic.Enqueue(within, NewMessage{})
	var refused *APIError
	equal(t, errors.As(err, &refused), true)
	equal(t, refused.RequestID, "r-1")
	equal(t, err.Error(), "duetime: no (409 x, request r-1)")
	equal(t, *ids, "[shop-1 shop-1]")
	equal(t, calls, 1)

	o.RetryFor = -1
	topic, _ = answering(o, 200, jsonType, "")
	_, err = topic.Enqueue(within, NewMessage{})
	var lost *NoAnswerError
	equal(t, errors.As(err, &lost) && lost.RequestID == "shop-1", true)
	equal(t, strings.HasSuffix(err.Error(), "; request shop-1"), true)
}

func TestAnAnswerOfAnotherServerAndAnItemNameTheRequestToo(t *testing.T) {
	topic, _ := answering(Options{}, 404, "text/html", "no")
	_, err := topic.Enqueue(ctx, NewMessage{})
	var foreign *ForeignAnswerError
	equal(t, errors.As(err, &foreign) && foreign.RequestID == "r-1", true)
	equal(t, strings.HasSuffix(err.Error(), "; request r-1"), true)

	item := `{"results":[{"error":{"code":"x","detail":"no"}}]}`
	topic, _ = answering(Options{}, 200, jsonType, item, item)
	all := must(topic.CancelMany(ctx, []string{"a"}))
	equal(t, all[0].Err.Error(), "item 0: no (x, request r-1)")
	_, err = topic.Cancel(ctx, "a")
	equal(t, err.Error(), "duetime: no (400 x, request r-1)")
}

func TestAnIDThatNoNodeTakesIsNotSent(t *testing.T) {
	for _, id := range []string{"", "shop 42", "a\nb", "é", strings.Repeat("x", 65)} {
		o := Options{RequestID: func(context.Context) string { return id }}
		topic, ids := answering(o, 200, jsonType, `{"outcome":"deleted"}`)
		must(topic.Delete(ctx, false))
		equal(t, *ids, "[]")
	}
}
