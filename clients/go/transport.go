package duetime

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// The header that says until when a request may be begun, in milliseconds since the Unix epoch.
	notAfter = "Duetime-Not-After"
	// Pauses between two tries, before jitter. Jitter: "full jitter", AWS Architecture Blog, 2015.
	pauseMax   = 5 * time.Second
	pauseFirst = 100 * time.Millisecond
	// Clocks that differ by less than this agree.
	clocksApart = 3 * time.Second

	jsonType = "application/json"
)

// transport sends requests to one address.
type transport struct {
	base, token       string
	timeout, retryFor time.Duration
	http              *http.Client
	inject            func(context.Context, http.Header)
	extract           func(context.Context, http.Header) context.Context
	requestID         func(context.Context) string
	// How far the node's clock is ahead of this machine's, by the Date of an answer.
	ahead atomic.Int64
}

// request is one call of the API.
type request struct {
	method, path, contentType string
	body                      []byte
	// How long the node may wait before it answers.
	wait time.Duration
	// Instead of those of the transport; timeout only where it is shorter, retryFor below zero: not at all.
	timeout, retryFor time.Duration
	// When the tries end, instead of retryFor after the first.
	end time.Time
	// The same for all tries; "": the node makes one.
	id string
}

// tries says when to try again: with full jitter, not before the node asks for it, and not after its end.
type tries struct {
	end   time.Time
	count int
}

func (t *transport) tries(r request) *tries {
	if !r.end.IsZero() {
		return &tries{end: r.end}
	}
	if r.retryFor == 0 {
		r.retryFor = t.retryFor
	}
	return &tries{end: time.Now().Add(r.retryFor)}
}

// pause waits for the next try; false if there is none.
func (t *tries) pause(ctx context.Context, err error) bool {
	d := pauseAfter(t.count, err)
	t.count++
	return !time.Now().Add(d).After(t.end) && sleep(ctx, d)
}

// dice draws numbers. The source that math/rand shares draws the same ones in each process before Go 1.20.
type dice struct {
	mu   sync.Mutex
	rand *rand.Rand
}

var jitter = newDice()

func newDice() *dice {
	var seed [8]byte
	if _, err := crand.Read(seed[:]); err != nil {
		panic("duetime: no random numbers: " + err.Error())
	}
	return &dice{rand: rand.New(rand.NewSource(int64(binary.LittleEndian.Uint64(seed[:]))))}
}

// draw draws a duration from zero up to below a ceiling.
func (d *dice) draw(ceiling time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.rand.Int63n(int64(ceiling)))
}

// pauseAfter draws the pause before the next try.
func pauseAfter(failures int, err error) time.Duration {
	ceiling := pauseMax
	if failures < 10 && pauseFirst<<failures < pauseMax {
		ceiling = pauseFirst << failures
	}
	d := jitter.draw(ceiling)
	var refused *APIError
	if errors.As(err, &refused) {
		d += refused.RetryAfter
	}
	return d
}

// sleep waits; false if ctx ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// isPassing is true for an error that the same request may not meet later.
func isPassing(err error) bool {
	var refused *APIError
	var lost *NoAnswerError
	return errors.As(err, &lost) || errors.As(err, &refused) && refused.Retryable()
}

// isWaitedOut is true for an error after which a consumer asks again: each that is passing, and each 503, whoever cures
// it.
func isWaitedOut(err error) bool {
	var refused *APIError
	return isPassing(err) || errors.As(err, &refused) && isPassingStatus(refused.Status)
}

// mayBeDone is true if the node may have carried out a request that ended so.
func mayBeDone(err error) bool {
	var refused *APIError
	var lost *NoAnswerError
	if errors.As(err, &lost) {
		return lost.MaybeDone
	}
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.Code {
	case "store_unavailable", "timeout", "":
		// Without a code the answer is a balancer's.
		return refused.Retryable()
	}
	return refused.Status != 429 && refused.Status != 503
}

// answer is what came to a request, and no refusal.
type answer struct {
	body    []byte
	headers http.Header
	// An earlier try may have been carried out.
	repeated bool
}

// do sends a request until it is answered, or its time is up.
func (t *transport) do(ctx context.Context, r request) (answer, error) {
	repeated := false
	tries, isClockKnown := t.tries(r), false
	if t.requestID != nil {
		r.id = takenID(t.requestID(ctx))
	}
	for {
		body, status, headers, err := t.send(ctx, r)
		if err == nil {
			return answer{body, headers, repeated}, nil
		}
		if status == http.StatusPreconditionFailed && !isClockKnown {
			isClockKnown = true
			continue
		}
		var lost *NoAnswerError
		if errors.As(err, &lost) {
			lost.MaybeDone = lost.MaybeDone || repeated
		}
		repeated = repeated || mayBeDone(err)
		if ctx.Err() != nil || !isPassing(err) || !tries.pause(ctx, err) {
			return answer{}, err
		}
	}
}

func (t *transport) send(ctx context.Context, r request) ([]byte, int, http.Header, error) {
	limit := t.timeout
	if r.timeout != 0 && r.timeout < limit {
		limit = r.timeout
	}
	limit += r.wait
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	sent, err := http.NewRequestWithContext(ctx, r.method, t.base+r.path, bytes.NewReader(r.body))
	if err != nil {
		return nil, 0, nil, err
	}
	sent.Header.Set("Accept", jsonType)
	sent.Header.Set("User-Agent", "duetime-go/0.1.0")
	if t.inject != nil {
		t.inject(ctx, sent.Header)
	}
	if r.id != "" {
		sent.Header.Set(requestIDHeader, r.id)
	}
	if t.token != "" {
		sent.Header.Set("Authorization", "Bearer "+t.token)
	}
	if r.body != nil {
		sent.Header.Set("Content-Type", r.contentType)
	}
	if r.method != http.MethodGet {
		end := time.Now().Add(limit + time.Duration(t.ahead.Load()))
		sent.Header.Set(notAfter, strconv.FormatInt(end.UnixMilli(), 10))
	}
	answer, err := t.http.Do(sent)
	if err != nil {
		return nil, 0, nil, &NoAnswerError{MaybeDone: !isUnconnected(err), Err: err, RequestID: r.id}
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, 0, nil, &NoAnswerError{MaybeDone: true, Err: err, RequestID: r.id}
	}
	t.seeClock(answer.Header)
	return body, answer.StatusCode, answer.Header, problem(answer.StatusCode, answer.Header, body)
}

// isUnconnected is true if no connection was made, so that nothing was sent.
func isUnconnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func (t *transport) seeClock(headers http.Header) {
	date, err := http.ParseTime(headers.Get("date"))
	if err != nil {
		return
	}
	// The Date has whole seconds, some of which passed on the way.
	ahead := time.Until(date)
	if ahead > -clocksApart && ahead < clocksApart {
		ahead = 0
	}
	t.ahead.Store(int64(ahead))
}

func (t *transport) json(ctx context.Context, method, path string, body any, to any) error {
	r := request{method: method, path: path, contentType: jsonType}
	if body != nil {
		var err error
		if r.body, err = encode(body); err != nil {
			return err
		}
	}
	found, err := t.do(ctx, r)
	if err != nil {
		return err
	}
	if err := read(found.body, found.headers, to); err != nil {
		return err
	}
	if of, isChecked := to.(interface{ isThere() bool }); isChecked && !of.isThere() {
		return foreign(0, found.headers, found.body)
	}
	return nil
}

// outcome is what became of one item, and whether an earlier try may have been carried out.
type outcome struct {
	answerItem
	repeated bool
}

// results sends items and answers an outcome for each; items that failed for a passing reason are sent again.
func results[T any](
	ctx context.Context, t *transport, r request, items []T, bodyOf func([]T) ([]byte, error),
) ([]outcome, error) {
	all := make([]outcome, len(items))
	open := make([]int, len(items))
	for at := range open {
		open[at] = at
	}
	tries := t.tries(r)
	r.end = tries.end
	for len(open) > 0 {
		some := make([]T, len(open))
		for number, at := range open {
			some[number] = items[at]
		}
		var err error
		if r.body, err = bodyOf(some); err != nil {
			return nil, err
		}
		answered, err := t.do(ctx, r)
		if err != nil {
			return nil, err
		}
		var parsed struct{ Results []answerItem }
		if err := read(answered.body, answered.headers, &parsed); err != nil {
			return nil, err
		}
		isComplete := len(parsed.Results) == len(open)
		for _, each := range parsed.Results {
			isComplete = isComplete && each.isThere()
		}
		if !isComplete {
			shown := fmt.Sprintf("%s did not answer one result for each of %d items", r.path, len(open))
			return nil, &ForeignAnswerError{shown, answered.headers.Get(requestIDHeader)}
		}
		var failed []int
		for number, at := range open {
			found := parsed.Results[number]
			if found.Error != nil {
				found.Error.requestID = answered.headers.Get(requestIDHeader)
			}
			all[at] = outcome{found, answered.repeated || all[at].isPassing()}
			if found.isPassing() {
				failed = append(failed, at)
			}
		}
		open = failed
		if len(open) > 0 && !tries.pause(ctx, nil) {
			break
		}
	}
	return all, nil
}

// detached has the values of a context and not its end.
type detached struct{ context.Context }

func (detached) Deadline() (time.Time, bool) { return time.Time{}, false }
func (detached) Done() <-chan struct{}       { return nil }
func (detached) Err() error                  { return nil }
