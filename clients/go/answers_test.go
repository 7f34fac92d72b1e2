package duetime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"strings"
	"testing"
	"time"
)

// scripted answers one request after the other, the last answer for ever, and notes when it was asked.
type scripted struct {
	answers []*reply
	asked   []time.Time
}

type reply struct {
	status  int
	headers map[string]string
	body    string
}

func (s *scripted) RoundTrip(*http.Request) (*http.Response, error) {
	s.asked = append(s.asked, time.Now())
	given := s.answers[0]
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	headers := http.Header{"Content-Type": {jsonType}}
	for name, value := range given.headers {
		headers.Set(name, value)
	}
	body := io.NopCloser(strings.NewReader(given.body))
	return &http.Response{StatusCode: given.status, Header: headers, Body: body}, nil
}

func atScripted(t *testing.T, answers ...*reply) (*Topic, *scripted) {
	t.Helper()
	s := &scripted{answers: answers}
	client, err := New("http://node", Options{RetryFor: 9 * time.Second, HTTP: &http.Client{Transport: s}})
	if err != nil {
		t.Fatal(err)
	}
	return client.Topic("orders"), s
}

const placedBody = `{"id": "a", "outcome": "scheduled", "due_at": 2000000000000, "shard": 0}`

func aProblem(status int, code, more string) *reply {
	body := fmt.Sprintf(`{"status": %d, "code": %q, "detail": "x"%s}`, status, code, more)
	return &reply{status, map[string]string{"Content-Type": "application/problem+json"}, body}
}

func TestAnAnswerInJSONThatIsNoNodesIsNoSuccess(t *testing.T) {
	ctx := context.Background()
	calls := map[string]func(*Topic) error{
		"Enqueue":     func(o *Topic) error { _, err := o.Enqueue(ctx, NewMessage{}); return err },
		"EnqueueMany": func(o *Topic) error { _, err := o.EnqueueMany(ctx, make([]NewMessage, 1)); return err },
		"Cancel":      func(o *Topic) error { _, err := o.Cancel(ctx, "a"); return err },
		"Reschedule":  func(o *Topic) error { _, err := o.Reschedule(ctx, "a", 1, time.Time{}); return err },
		"Create":      func(o *Topic) error { _, err := o.Create(ctx, nil); return err },
		"Delete":      func(o *Topic) error { _, err := o.Delete(ctx, false); return err },
		"Get":         func(o *Topic) error { _, err := o.Get(ctx, "a"); return err },
		"Watermark":   func(o *Topic) error { _, err := o.Watermark(ctx, time.Time{}, 0); return err },
		"Claim":       func(o *Topic) error { _, err := o.Claim(ctx, 1, 0, 0); return err },
	}
	answers := []*reply{
		{401, nil, `{"message": "Unauthorized"}`},
		{404, nil, `{"message": "Not Found"}`},
		{500, nil, `{"message": "An unexpected error occurred"}`},
		{302, map[string]string{"Location": "/login"}, `{}`},
		{200, nil, `{"status": "ok"}`},
		{200, nil, `{"results": [null]}`},
		{200, nil, `[]`},
		{200, nil, `null`},
	}
	for _, answer := range answers {
		for name, call := range calls {
			topic, s := atScripted(t, answer)
			err := call(topic)
			if foreign := (*ForeignAnswerError)(nil); !errors.As(err, &foreign) || len(s.asked) != 1 {
				t.Errorf("%s, answered %d %s: %v after %d requests", name, answer.status, answer.body, err, len(s.asked))
			}
		}
	}
}

func TestTheWordOfTheNodeDecidesWhetherARequestIsSentAgain(t *testing.T) {
	ctx := context.Background()
	topic, s := atScripted(t, aProblem(503, "shard_lost", `, "retryable": false`))
	_, err := topic.Enqueue(ctx, NewMessage{})
	refused := (*APIError)(nil)
	equal(t, errors.As(err, &refused) && !refused.Retryable(), true)
	equal(t, len(s.asked), 1)
	topic, s = atScripted(t, aProblem(507, "of_a_newer_node", `, "retryable": true`), &reply{200, nil, placedBody})
	placed, err := topic.Enqueue(ctx, NewMessage{})
	equal(t, fmt.Sprint(placed.Outcome, err, len(s.asked)), "scheduled<nil> 2")
}

func TestTheWordOfTheNodeDecidesWhetherAnItemIsSentAgain(t *testing.T) {
	failed := func(code string, retryable bool) *reply {
		item := `{"results": [{"error": {"code": %q, "detail": "x", "retryable": %t}}]}`
		return &reply{200, nil, fmt.Sprintf(item, code, retryable)}
	}
	done := &reply{200, nil, `{"results": [` + placedBody + `]}`}
	for _, one := range []struct {
		answer *reply
		asked  int
	}{{failed("of_a_newer_node", true), 2}, {failed("busy", false), 1}} {
		topic, s := atScripted(t, one.answer, done)
		results, err := topic.EnqueueMany(context.Background(), make([]NewMessage, 1))
		equal(t, err == nil && len(s.asked) == one.asked && (results[0].Err == nil) == (one.asked == 2), true)
	}
}

func TestAConsumerWaitsOutEach503WhoeverCuresIt(t *testing.T) {
	topic, s := atScripted(t, aProblem(503, "shard_lost", `, "retryable": false`), aProblem(403, "forbidden", ""))
	handler := func(context.Context, *Delivery) error { return nil }
	err := topic.Consume(context.Background(), handler, ConsumeOptions{OnError: func(error, *Delivery) {}})
	equal(t, isCode(err, "forbidden"), true)
	equal(t, len(s.asked), 2)
}

func TestABalancerThatIsAskedTooOftenSaysWhenToComeBackInSecondsOrByADate(t *testing.T) {
	now := time.Now().Add(-time.Hour).UTC()
	for _, headers := range []map[string]string{
		{"Retry-After": "1"},
		{"Retry-After": now.Add(2 * time.Second).Format(http.TimeFormat), "Date": now.Format(http.TimeFormat)},
	} {
		headers["Content-Type"] = "text/plain"
		topic, s := atScripted(t, &reply{429, headers, "slow down"}, &reply{200, nil, placedBody})
		_, err := topic.Enqueue(context.Background(), NewMessage{})
		if err != nil || len(s.asked) != 2 || s.asked[1].Sub(s.asked[0]) < 900*time.Millisecond {
			t.Errorf("%v: %v, asked %v", headers, err, s.asked)
		}
	}
}

// Before Go 1.20 each process draws the same numbers from the shared source.
func TestPausesAreNotDrawnFromTheSourceThatEachProcessBeginsAlike(t *testing.T) {
	drawn := map[string]bool{}
	for range [3]bool{} {
		rand.Seed(1)
		drawn[fmt.Sprint(pauseAfter(9, nil), pauseAfter(9, nil))] = true
	}
	equal(t, len(drawn), 3)
	equal(t, newDice().draw(pauseMax) != newDice().draw(pauseMax), true)
}
