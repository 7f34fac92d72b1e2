package duetime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const later = time.Hour

var (
	ofAWebServer = map[string]string{"content-type": "text/html"}
	problemType  = map[string]string{"content-type": "application/problem+json", "retry-after": "0"}
	busy         = map[string]any{"status": 503, "headers": problemType,
		"body": map[string]any{"code": "busy", "detail": "come back", "status": 503}}
)

func TestAnEnqueueWhoseAnswerIsLostIsSentAgainAndStoredOnce(t *testing.T) {
	r := made(t, 0, nil)
	r.fault("cut_answer", "/messages", nil)
	placed := must(r.topic.Enqueue(ctx, NewMessage{Payload: "x", Delay: later}))
	equal(t, []any{placed.Outcome, placed.Repeated}, []any{EnqueueScheduled, true})
	equal(t, len(r.requests("/messages")), 2)
	equal(t, must(r.topic.Info(ctx)).Scheduled, 1)
}

func TestALostAnswerToAnEnqueueWithAnOwnIDIsADuplicateThatSaysSo(t *testing.T) {
	r := made(t, 0, nil)
	r.fault("cut_answer", "/messages", nil)
	first := must(r.topic.Enqueue(ctx, NewMessage{ID: "order-1", Delay: later}))
	equal(t, []any{first.Outcome, first.Repeated}, []any{EnqueueDuplicate, true})
	second := must(r.topic.Enqueue(ctx, NewMessage{ID: "order-1", Delay: later}))
	equal(t, []any{second.Outcome, second.Repeated}, []any{EnqueueDuplicate, false})
}

func TestWhatTheNetworkRepeatsIsStoredOnce(t *testing.T) {
	r := made(t, 0, nil)
	r.fault("repeat", "/messages", map[string]any{"times": 2})
	must(r.topic.Enqueue(ctx, NewMessage{Delay: later}))
	must(r.topic.EnqueueMany(ctx, make([]NewMessage, 10)))
	info := must(r.topic.Info(ctx))
	equal(t, info.Scheduled, 11)
}

func TestAConnectionThatIsCutAndANodeThatIsBusyAreTriedAgain(t *testing.T) {
	r := made(t, 0, nil)
	r.fault("cut", "/messages", nil)
	r.fault("answer", "/messages", busy)
	r.fault("answer", "/messages", map[string]any{"status": 502, "headers": ofAWebServer})
	equal(t, must(r.topic.Enqueue(ctx, NewMessage{Delay: later})).Outcome, EnqueueScheduled)
	var faults []string
	for _, request := range r.requests("/messages") {
		faults = append(faults, request.Fault)
	}
	equal(t, faults, []string{"cut", "answer", "answer", ""})
}

func TestTheLastErrorIsReturnedWhenTheTimeForRetriesIsOver(t *testing.T) {
	r := newRig(t, Options{RetryFor: -1})
	r.create(nil)
	var refused *APIError
	var lost *NoAnswerError
	r.fault("answer", "/messages", busy)
	if _, err := r.topic.Enqueue(ctx, NewMessage{}); !errors.As(err, &refused) || refused.Code != "busy" {
		t.Fatal(err)
	}
	r.fault("cut_answer", "/messages", nil)
	if _, err := r.topic.Enqueue(ctx, NewMessage{}); !errors.As(err, &lost) || !lost.MaybeDone {
		t.Fatal(err)
	}
	nobody := must(New("http://127.0.0.1:1", Options{RetryFor: -1}))
	if _, err := nobody.Topic("orders").Enqueue(ctx, NewMessage{}); !errors.As(err, &lost) || lost.MaybeDone {
		t.Fatal(err)
	}
}

func TestItemsAndThenRequestsThatFailAreSentAgainForTheTimeOfOneCall(t *testing.T) {
	var sent []time.Time
	answer := func(*http.Request) (*http.Response, error) {
		sent = append(sent, time.Now())
		status, kind, body := 503, "application/problem+json", `{"code":"busy","detail":"x"}`
		if len(sent) == 1 {
			// Most of the time is over when the item fails, and then the requests fail.
			time.Sleep(4500 * time.Millisecond)
			status, kind, body = 200, jsonType, `{"results":[{"error":{"code":"busy","detail":"x"}}]}`
		}
		headers := http.Header{"Content-Type": {kind}, "Retry-After": {"1"}}
		return &http.Response{StatusCode: status, Header: headers, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
	client := &http.Client{Transport: roundTrip(answer)}
	node := must(New("http://node", Options{HTTP: client, RetryFor: 7500 * time.Millisecond}))
	_, err := node.Topic("orders").Ack(ctx, []string{"a"})
	equal(t, isCode(err, "busy"), true)
	equal(t, time.Since(sent[0]) < 10500*time.Millisecond, true)
}

func TestAClaimThatFailedAfterItsAcksSaysWhenToComeBack(t *testing.T) {
	r := made(t, 0, nil)
	acked := []any{map[string]any{"outcome": "ok", "id": "a"}}
	r.fault("answer", "/claim", map[string]any{"status": 200,
		"headers": map[string]string{"content-type": jsonType, "retry-after": "7"},
		"body":    map[string]any{"messages": []any{}, "results": acked, "error": busy["body"]}})
	claimed := must(r.topic.Claim(ctx, 1, 0, 0, "a"))
	equal(t, claimed.Err.(*APIError).RetryAfter, 7*time.Second)
}

func TestARefusalIsReturnedAtOnceAndACallEndsWithItsContext(t *testing.T) {
	r := newRig(t, Options{})
	var refused *APIError
	if _, err := r.topic.Enqueue(ctx, NewMessage{}); !errors.As(err, &refused) || refused.Code != "unknown_topic" {
		t.Fatal(err)
	}
	equal(t, len(r.requests("/messages")), 1)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := r.topic.Info(ended); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestACancelWhoseAnswerIsLostSaysThatItMayHaveBeenDone(t *testing.T) {
	r := made(t, 0, nil)
	must(r.topic.Enqueue(ctx, NewMessage{ID: "order-1", Delay: later}))
	r.fault("cut_answer", "/cancel", nil)
	equal(t, must(r.topic.Cancel(ctx, "order-1")), Cancelled{ID: "order-1", Outcome: CancelUnknown, Repeated: true})
	equal(t, must(r.topic.Cancel(ctx, "nobody")), Cancelled{ID: "nobody", Outcome: CancelUnknown})
}

func TestAnExtensionWhoseAnswerIsLostIsSentAgainAndGivesTheReceiptThatSettles(t *testing.T) {
	r := made(t, 1, nil)
	receipts := []string{must(r.topic.Claim(ctx, 1, 5*time.Second, 0)).Messages[0].Receipt}
	r.fault("cut_answer", "/extend", nil)
	extended := must(r.topic.Extend(ctx, receipts, 0))[0].Value
	equal(t, extended.Outcome == SettleOK && extended.Receipt != "", true)
	equal(t, must(r.topic.Ack(ctx, []string{extended.Receipt}))[0].Value.Outcome, SettleOK)
	equal(t, len(r.requests("/extend")), 2)
}

func TestItemsThatFailedForAPassingReasonAreSentAgainAlone(t *testing.T) {
	r := made(t, 0, nil)
	failed := map[string]any{"id": "b", "error": map[string]any{"code": "store_unavailable", "detail": "x", "index": 1}}
	refused := map[string]any{"id": "c", "error": map[string]any{"code": "invalid_id", "detail": "x", "index": 2}}
	stored := map[string]any{"id": "a", "outcome": "scheduled", "shard": 0}
	r.fault("answer", "/messages", map[string]any{"status": 200, "headers": map[string]string{"content-type": jsonType},
		"body": map[string]any{"results": []any{stored, failed, refused}}})
	results := must(r.topic.EnqueueMany(ctx, []NewMessage{{ID: "a"}, {ID: "b"}, {ID: "c"}}))
	equal(t, []any{results[0].Value.Outcome, results[1].Value.Outcome}, []any{EnqueueScheduled, EnqueueScheduled})
	equal(t, *results[2].Err, ItemError{Code: "invalid_id", Detail: "x", Index: 2, ID: "c"})
	equal(t, r.ids("/messages")[1], []string{"b"})
}

func TestEveryRequestThatChangesSomethingSaysUntilWhenItIsWaitedFor(t *testing.T) {
	r := made(t, 0, nil)
	must(r.topic.Enqueue(ctx, NewMessage{ID: "a", Delay: later}))
	must(r.topic.Reschedule(ctx, "a", later, time.Time{}))
	must(r.topic.Get(ctx, "a"))
	must(r.topic.Cancel(ctx, "a"))
	must(r.topic.Claim(ctx, 1, 0, 0))
	must(r.topic.Delete(ctx, false))
	for _, request := range r.requests("") {
		equal(t, request.Headers["duetime-not-after"] != "", request.Method != "GET")
	}
}

func TestWhatComesAfterItsTimeIsNotCarriedOut(t *testing.T) {
	r := newRig(t, Options{Timeout: 400 * time.Millisecond, RetryFor: -1})
	r.create(nil)
	r.fault("late", "/messages", map[string]any{"seconds": 1})
	var lost *NoAnswerError
	if _, err := r.topic.Enqueue(ctx, NewMessage{ID: "a", Delay: later}); !errors.As(err, &lost) {
		t.Fatal(err)
	}
	until(t, "the late request is answered", func() bool { return r.requests("/messages")[0].Status != 0 })
	equal(t, r.requests("/messages")[0].Status, 412)
	equal(t, must(r.beside.Get(ctx, "a")) == nil, true)
}

func TestAnAnswerThatIsNoneOfANodeIsNamed(t *testing.T) {
	r := made(t, 0, nil)
	r.fault("answer", "/messages", map[string]any{"status": 200, "headers": ofAWebServer})
	var foreign *ForeignAnswerError
	if _, err := r.topic.Enqueue(ctx, NewMessage{}); !errors.As(err, &foreign) {
		t.Fatal(err)
	}
}

func TestAClockThatIsWrongIsMadeUpForByTheDateOfTheNode(t *testing.T) {
	var ends []int64
	answer := func(r *http.Request) (*http.Response, error) {
		ends = append(ends, must(strconv.ParseInt(r.Header.Get(notAfter), 10, 64)))
		headers := http.Header{"Content-Type": {"application/problem+json"}, "Date": {"Tue, 01 Jan 2030 00:00:00 GMT"}}
		body := io.NopCloser(strings.NewReader(`{"code":"x","detail":"x"}`))
		return &http.Response{StatusCode: 412, Header: headers, Body: body}, nil
	}
	node := must(New("http://node", Options{HTTP: &http.Client{Transport: roundTrip(answer)}}))
	if _, err := node.Topic("orders").Enqueue(ctx, NewMessage{}); err == nil {
		t.Fatal("a second 412 is an error")
	}
	equal(t, len(ends), 2)
	if apart := ends[1] - 1_893_456_010_000; apart < -2000 || apart > 2000 {
		t.Fatal(ends)
	}
}

func TestAPauseGrowsAndIsDrawnAndIsNotShorterThanTheNodeAsksFor(t *testing.T) {
	drawn := map[time.Duration]bool{}
	for failures := 0; failures < 20; failures++ {
		ceiling := 100 * time.Millisecond << failures
		if failures > 5 {
			ceiling = 5 * time.Second
		}
		pause := pauseAfter(failures, nil)
		drawn[pause] = true
		equal(t, pause <= ceiling, true)
	}
	equal(t, len(drawn) > 10, true)
	equal(t, pauseAfter(0, &APIError{RetryAfter: 7 * time.Second}) >= 7*time.Second, true)
	for _, asked := range []string{"99999999999", strings.Repeat("9", 400)} {
		refused := problem(503, http.Header{"Retry-After": {asked}}, nil).(*APIError)
		equal(t, refused.RetryAfter, 24*time.Hour)
	}
}

func TestWhatWouldBeDueAtAnotherTimeThanMeantAndWhatCannotBeInAPathIsRefused(t *testing.T) {
	topic := must(New("127.0.0.1:1", Options{RetryFor: -1})).Topic("orders")
	for _, m := range []NewMessage{{Delay: -1}, {Delay: 1, DueAt: time.Now()}, {Payload: func() {}}} {
		_, err := topic.Enqueue(ctx, m)
		var lost *NoAnswerError
		equal(t, err != nil && !errors.As(err, &lost), true)
	}
	if _, err := topic.Get(ctx, ".."); err == nil || !strings.Contains(err.Error(), "CancelMany") {
		t.Fatal(err)
	}
	for _, address := range []string{"", "ftp://x", "http://", "http://user:secret@host"} {
		_, err := New(address, Options{})
		equal(t, err != nil && !strings.Contains(err.Error(), "secret"), true)
	}
	equal(t, millis(time.Microsecond), "1ms")
	equal(t, moment(time.Unix(1, 1)), 1001)
	isV7 := regexp.MustCompile("^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
	equal(t, isV7.MatchString(makeID()), true)
}

func TestAStreamGoesInBatchesAndOneBadMessageTakesNoOtherAlong(t *testing.T) {
	r := made(t, 0, nil)
	sent, got := 0, 0
	next := func() (NewMessage, error) {
		if sent == 1200 {
			return NewMessage{}, io.EOF
		}
		m := NewMessage{ID: fmt.Sprintf("m-%d", sent), Payload: sent, Delay: later}
		if sent == 700 {
			m.ID = "a\x01"
		}
		sent++
		return m, nil
	}
	err := r.topic.EnqueueStream(ctx, next, func(result Result[Enqueued]) error {
		if got == 0 {
			equal(t, sent, 500)
		}
		if got == 700 {
			equal(t, []any{result.Err.Index, result.Err.Code}, []any{700, "invalid_id"})
		} else {
			equal(t, result.Value.ID, fmt.Sprintf("m-%d", got))
		}
		got++
		return nil
	})
	equal(t, err, nil)
	equal(t, got, 1200)
	equal(t, must(r.topic.Info(ctx)).Scheduled, 1199)
	batches := r.ids("/messages")
	equal(t, []int{len(batches), len(batches[0]), len(batches[1]), len(batches[2])}, []int{3, 500, 500, 200})
	// An array is refused whole and early, and not begun after its time; a stream of lines is not.
	for _, request := range r.requests("/messages") {
		equal(t, request.Headers["content-type"], jsonType)
	}
}

func TestABatchIsNoLargerThanANodeTakesAndWhatIsTooLargeAloneTakesNoOtherAlong(t *testing.T) {
	r := made(t, 0, Settings{"max_payload": 1_000_000})
	large, small := strings.Repeat("x", 700_000), NewMessage{ID: "small", Delay: later}
	must(r.topic.EnqueueMany(ctx, []NewMessage{
		small, {ID: "a", Payload: large, Delay: later}, {ID: "b", Payload: large, Delay: later},
	}))
	equal(t, r.ids("/messages"), [][]string{{"small", "a"}, {"b"}})
	equal(t, must(r.topic.Info(ctx)).Scheduled, 3)
	r.fault("answer", "/messages", map[string]any{"status": 413, "headers": problemType,
		"body": map[string]any{"code": "body_too_large", "detail": "too large", "status": 413}})
	results := must(r.topic.EnqueueMany(ctx, []NewMessage{{ID: "huge", Payload: large + large, Delay: later}, small}))
	equal(t, *results[0].Err, ItemError{Code: "body_too_large", Detail: "too large", ID: "huge"})
	equal(t, results[1].Value.Outcome, EnqueueDuplicate)
}

func TestNoMessageIsLostOrStoredTwiceWhileTheNodeRestarts(t *testing.T) {
	r := made(t, 0, nil)
	var outcomes list[EnqueueOutcome]
	var all sync.WaitGroup
	for each := 0; each < 3; each++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for n := 0; n < 100; n++ {
				outcomes.add(must(r.topic.Enqueue(ctx, NewMessage{Delay: later})).Outcome)
			}
		}()
	}
	until(t, "some are stored", func() bool { return len(outcomes.get()) > 60 })
	r.nodeDoes("restart")
	all.Wait()
	for _, outcome := range outcomes.get() {
		equal(t, outcome, EnqueueScheduled)
	}
	equal(t, must(r.beside.Info(ctx)).Scheduled, 300)
}
