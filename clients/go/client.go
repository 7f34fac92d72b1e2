package duetime

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// Messages, and bytes of JSON, in one request of a stream; a message of more bytes goes alone.
	batchItems = 500
	batchBytes = 1 << 20
	// Ids or receipts in one request.
	idsMax = 10_000
	// Idle connections kept per client.
	idleMax = 256
)

// Options of a client. The zero value has the defaults.
type Options struct {
	// Token that the node asks for.
	Token string
	// Timeout is how long an answer is waited for; 10 s if zero.
	Timeout time.Duration
	// RetryFor is how long a call that found no node, or was asked to come back, is sent again; 30 s if zero, below
	// zero: never.
	RetryFor time.Duration
	// HTTP is used instead of a client of its own, for TLS with own authorities or certificates.
	HTTP *http.Client
	// Inject adds the trace of ctx to the headers of a request, as a propagator of OpenTelemetry does.
	Inject func(ctx context.Context, headers http.Header)
	// Extract returns a ctx in the trace that headers name; a handler gets the one of its message.
	Extract func(ctx context.Context, headers http.Header) context.Context
	// RequestID is called for each request and returns its id, which the node's log has, such as what ctx holds; all
	// tries have the same. Of one that is not of 1 to 64 letters, digits and "-_.:/+=" the node makes another.
	RequestID func(ctx context.Context) string
}

// Client is a client of Duetime. Goroutines may share it.
type Client struct{ transport *transport }

// New makes a client of the node, or of the balancer in front of several, at an address like "http://127.0.0.1:3830".
func New(address string, o Options) (*Client, error) {
	base := address
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	base = strings.TrimRight(base, "/")
	// The paths of the API begin with /v1, so many give it. A node may be called so.
	if rest := strings.TrimRight(strings.TrimSuffix(base, "/v1"), "/"); !strings.HasSuffix(rest, ":") {
		base = rest
	}
	parsed, err := url.Parse(base)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" || parsed.User != nil {
		return nil, errors.New("duetime: this is not the address of a node; " +
			"write it like \"http://127.0.0.1:3830\", and give a Token")
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	if o.RetryFor == 0 {
		o.RetryFor = 30 * time.Second
	}
	own := http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: idleMax, ForceAttemptHTTP2: true}}
	if o.HTTP != nil {
		own = *o.HTTP
	}
	if own.CheckRedirect == nil {
		// A node redirects nowhere, and what follows would be another method or without its body.
		own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	t := &transport{base: base, token: strings.TrimSpace(o.Token), timeout: o.Timeout, retryFor: o.RetryFor, http: &own}
	t.inject, t.extract, t.requestID = o.Inject, o.Extract, o.RequestID
	return &Client{t}, nil
}

// Topic returns the topic of that name. It asks the node nothing.
func (c *Client) Topic(name string) *Topic {
	encoded, err := part(name)
	return &Topic{Name: name, path: "/v1/topics/" + encoded, err: err, transport: c.transport}
}

// Topics returns every topic that the token is for.
func (c *Client) Topics(ctx context.Context) ([]*TopicInfo, error) {
	var found answerTopics
	if err := c.transport.json(ctx, "GET", "/v1/topics", nil, &found); err != nil {
		return nil, err
	}
	var all []*TopicInfo
	for _, raw := range found.Topics {
		info, err := topicInfo(raw)
		if err != nil {
			return nil, err
		}
		all = append(all, info)
	}
	return all, nil
}

// ClaimAny claims up to max due messages of the first of several topics that has any. Which topic is asked first is
// drawn by the weights, 1 to 1000. It waits up to wait (60 s at most) for the first message to fall due in any of them.
// With a visibility of zero that of each message counts, else that of the topic. Ack at the topic that the answer names,
// or with a later claim from it: the receipts of ack are acked first, as Topic.Claim does, each in that of the topics that
// it is of.
func (c *Client) ClaimAny(
	ctx context.Context, topics map[string]int, max int, wait, visibility time.Duration, ack ...string,
) (ClaimedAny, error) {
	asked := claimFields("", max, wait, visibility)
	asked["topics"] = topics
	if len(ack) > 0 {
		asked["ack"] = ack
	}
	body, err := encode(asked)
	if err != nil {
		return ClaimedAny{}, err
	}
	r := request{method: "POST", path: "/v1/claim", contentType: jsonType, body: body, wait: wait}
	answered, err := c.transport.do(ctx, r)
	if err != nil {
		return ClaimedAny{}, err
	}
	found, err := readKnown[answerClaimAny](answered)
	if err != nil {
		return ClaimedAny{}, err
	}
	if len(found.Results) != len(ack) {
		return ClaimedAny{}, foreign(0, answered.headers, answered.body)
	}
	one := answerClaim{Messages: found.Messages, Results: found.Results, Error: found.Error}.claimed(answered.headers)
	return ClaimedAny{found.Topic, one.Messages, found.Failed, one.Results, one.Err}, nil
}

func claimFields(consumer string, max int, wait, visibility time.Duration) map[string]any {
	asked := map[string]any{"max": max, "wait": millis(wait)}
	if visibility != 0 {
		asked["visibility_timeout"] = millis(visibility)
	}
	if consumer != "" {
		asked["consumer"] = consumer
	}
	return asked
}

// Topic is what is enqueued into it, cancelled, and consumed.
type Topic struct {
	Name      string
	path      string
	err       error
	transport *transport
}

func (t *Topic) json(ctx context.Context, method, path string, body any, to any) error {
	if t.err != nil {
		return t.err
	}
	return t.transport.json(ctx, method, t.path+path, body, to)
}

// Create creates or changes the topic.
func (t *Topic) Create(ctx context.Context, settings Settings) (*TopicInfo, error) {
	if settings == nil {
		settings = Settings{}
	}
	var raw json.RawMessage
	if err := t.json(ctx, "PUT", "", settings, &raw); err != nil {
		return nil, err
	}
	return topicInfo(raw)
}

// Info returns its settings and counts.
func (t *Topic) Info(ctx context.Context) (*TopicInfo, error) {
	var raw json.RawMessage
	if err := t.json(ctx, "GET", "", nil, &raw); err != nil {
		return nil, err
	}
	return topicInfo(raw)
}

// Delete deletes the topic and answers "deleted", "deleting" or "unknown"; with force, with the messages in it.
func (t *Topic) Delete(ctx context.Context, force bool) (string, error) {
	path := ""
	if force {
		path = "?force=true"
	}
	var found answerItem
	err := t.json(ctx, "DELETE", path, nil, &found)
	if isCode(err, "unknown_topic") {
		return "unknown", nil
	}
	return found.Outcome, err
}

// Enqueue enqueues one message. Safe to send again: the client makes an ID if there is none.
func (t *Topic) Enqueue(ctx context.Context, m NewMessage) (Enqueued, error) {
	l, err := lineOf(m)
	if err != nil {
		return Enqueued{}, err
	}
	if t.err != nil {
		return Enqueued{}, t.err
	}
	r := request{method: "POST", path: t.path + "/messages", contentType: jsonType, body: l.text}
	answered, err := t.transport.do(ctx, r)
	if err != nil {
		return Enqueued{}, err
	}
	found, err := readKnown[answerItem](answered)
	if err != nil {
		return Enqueued{}, err
	}
	return found.enqueued(answered.repeated, l.isMade), nil
}

// EnqueueMany enqueues many messages; a result for each, in order. One that is refused takes no other along.
func (t *Topic) EnqueueMany(ctx context.Context, messages []NewMessage) ([]Result[Enqueued], error) {
	var all []Result[Enqueued]
	next := func() (NewMessage, error) {
		if len(messages) == 0 {
			return NewMessage{}, io.EOF
		}
		m := messages[0]
		messages = messages[1:]
		return m, nil
	}
	err := t.EnqueueStream(ctx, next, func(r Result[Enqueued]) error {
		all = append(all, r)
		return nil
	})
	return all, err
}

// EnqueueStream enqueues a stream of any length, batch by batch. It calls next until that returns io.EOF, and got with
// the result of each message, in order; an error of either ends it.
func (t *Topic) EnqueueStream(
	ctx context.Context, next func() (NewMessage, error), got func(Result[Enqueued]) error,
) error {
	var begun []line
	for first, ended := 0, false; !ended; {
		batch, size := begun, 0
		for _, l := range begun {
			size += len(l.text) + 1
		}
		for begun = nil; len(batch) < batchItems && size < batchBytes; {
			m, err := next()
			if err == io.EOF {
				ended = true
				break
			}
			var l line
			if err == nil {
				l, err = lineOf(m)
			}
			if err != nil {
				return err
			}
			if len(batch) > 0 && size+len(l.text) >= batchBytes {
				// The next batch begins with it.
				begun = []line{l}
				break
			}
			// With its comma.
			batch, size = append(batch, l), size+len(l.text)+1
		}
		found, err := t.enqueueBatch(ctx, batch)
		if err != nil {
			return err
		}
		for at, each := range found {
			r := Result[Enqueued]{Err: each.err(first + at)}
			if r.Err == nil {
				r.Value = each.enqueued(each.repeated, batch[at].isMade)
			}
			if err := got(r); err != nil {
				return err
			}
		}
		first += len(batch)
	}
	return nil
}

func (t *Topic) enqueueBatch(ctx context.Context, batch []line) ([]outcome, error) {
	if t.err != nil {
		return nil, t.err
	}
	r := request{method: "POST", path: t.path + "/messages", contentType: jsonType}
	found, err := results(ctx, t.transport, r, batch, func(some []line) ([]byte, error) {
		body := []byte{'['}
		for _, l := range some {
			body = append(append(body, l.text...), ',')
		}
		body[len(body)-1] = ']'
		return body, nil
	})
	var refused *APIError
	if len(batch) == 1 && errors.As(err, &refused) && refused.Status == http.StatusRequestEntityTooLarge {
		// What is refused is the body, which is this message.
		isRetryable := refused.Retryable()
		why := &refusal{refused.Code, refused.Detail, refused.Field, &isRetryable, refused.RequestID}
		return []outcome{{answerItem: answerItem{ID: batch[0].id, Error: why}}}, nil
	}
	return found, err
}

// Get returns the message of that id; nil if there is none: never enqueued, cancelled, or delivered already.
func (t *Topic) Get(ctx context.Context, id string) (*Message, error) {
	encoded, err := part(id)
	if err != nil {
		return nil, err
	}
	var found answerMessage
	err = t.json(ctx, "GET", "/messages/"+encoded, nil, &found)
	if isCode(err, "unknown_message") {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return found.message(), nil
}

// Cancel cancels a message. After CancelDone it is never delivered; CancelInFlight: it may be delivered just now.
func (t *Topic) Cancel(ctx context.Context, id string) (Cancelled, error) {
	return one(t.CancelMany(ctx, []string{id}))
}

// CancelMany cancels many messages; a result for each, in order.
func (t *Topic) CancelMany(ctx context.Context, ids []string) ([]Result[Cancelled], error) {
	return each(ctx, t, request{path: "/cancel"}, "ids", ids, nil, func(found outcome, id string) Cancelled {
		return found.cancelled(id, found.repeated)
	})
}

// Reschedule gives a message another due time: after delay, or, if that is zero, at a time.
func (t *Topic) Reschedule(ctx context.Context, id string, delay time.Duration, at time.Time) (Rescheduled, error) {
	encoded, err := part(id)
	if err != nil {
		return Rescheduled{}, err
	}
	body, err := due(delay, at)
	if err != nil {
		return Rescheduled{}, err
	}
	if len(body) == 0 {
		body["delay"] = "0ms"
	}
	var found answerItem
	if err := t.json(ctx, "PATCH", "/messages/"+encoded, body, &found); err != nil {
		return Rescheduled{}, err
	}
	return found.rescheduled(id), nil
}

// Claim claims up to max due messages, and waits up to wait (60 s at most) for the first to fall due. With a visibility
// of zero that of each message counts, else that of the topic.
//
// The receipts of ack are acked first, see Claimed.Results; if one of them is neither SettleOK nor SettleAlready, the
// claim does not wait. An ack that failed is not tried again here, and neither is a claim that failed after the acks
// (Claimed.Err).
func (t *Topic) Claim(ctx context.Context, max int, wait, visibility time.Duration, ack ...string) (Claimed, error) {
	return t.claim(ctx, request{}, "", max, wait, visibility, ack)
}

// ClaimAs is Claim by a consumer of that name, which is in the list of consumers that a node answers, in 100 bytes.
func (t *Topic) ClaimAs(
	ctx context.Context, consumer string, max int, wait, visibility time.Duration, ack ...string,
) (Claimed, error) {
	return t.claim(ctx, request{}, consumer, max, wait, visibility, ack)
}

func (t *Topic) claim(
	ctx context.Context, r request, consumer string, max int, wait, visibility time.Duration, ack []string,
) (Claimed, error) {
	if t.err != nil {
		return Claimed{}, t.err
	}
	asked := claimFields(consumer, max, wait, visibility)
	if len(ack) > 0 {
		asked["ack"] = ack
	}
	body, err := encode(asked)
	if err != nil {
		return Claimed{}, err
	}
	r.method, r.path, r.contentType, r.body, r.wait = "POST", t.path+"/claim", jsonType, body, wait
	answered, err := t.transport.do(ctx, r)
	if err != nil {
		return Claimed{}, err
	}
	found, err := readKnown[answerClaim](answered)
	if err != nil {
		return Claimed{}, err
	}
	if len(found.Results) != len(ack) {
		return Claimed{}, foreign(0, answered.headers, answered.body)
	}
	return found.claimed(answered.headers), nil
}

// Ack says that the messages are done.
func (t *Topic) Ack(ctx context.Context, receipts []string) ([]Result[Settled], error) {
	return t.settle(ctx, request{path: "/ack"}, receipts, nil)
}

// Nack says that they are not: they come again, or, with Dead, are dead letters at once.
func (t *Topic) Nack(ctx context.Context, receipts []string, n Nack) ([]Result[Settled], error) {
	return t.settle(ctx, request{path: "/nack"}, receipts, nackFields(n))
}

// Extend asks for more time, from now on; zero: that of each message, else that of the topic. It answers new receipts: use these from
// then on.
func (t *Topic) Extend(ctx context.Context, receipts []string, visibility time.Duration) ([]Result[Settled], error) {
	more := map[string]any{}
	if visibility != 0 {
		more["visibility_timeout"] = millis(visibility)
	}
	return t.settle(ctx, request{path: "/extend"}, receipts, more)
}

// Release says that they were not begun: they are due again at once, and the claim costs no attempt.
func (t *Topic) Release(ctx context.Context, receipts []string) ([]Result[Settled], error) {
	return t.settle(ctx, request{path: "/release"}, receipts, nil)
}

func (t *Topic) settle(
	ctx context.Context, r request, receipts []string, more map[string]any,
) ([]Result[Settled], error) {
	return each(ctx, t, r, "receipts", receipts, more, func(found outcome, _ string) Settled { return found.settled() })
}

// each sends ids or receipts, in requests of bounded size, and reads a result for each.
func each[T any](
	ctx context.Context, t *Topic, r request, field string, items []string, more map[string]any,
	of func(outcome, string) T,
) ([]Result[T], error) {
	if t.err != nil {
		return nil, t.err
	}
	r.method, r.path, r.contentType = "POST", t.path+r.path, jsonType
	bodyOf := func(some []string) ([]byte, error) {
		body := map[string]any{field: some}
		for name, value := range more {
			body[name] = value
		}
		return encode(body)
	}
	var all []Result[T]
	for begin := 0; begin < len(items); begin += idsMax {
		some := items[begin:]
		if len(some) > idsMax {
			some = some[:idsMax]
		}
		found, err := results(ctx, t.transport, r, some, bodyOf)
		if err != nil {
			return all, err
		}
		for at, answer := range found {
			item := Result[T]{Err: answer.err(begin + at)}
			if item.Err == nil {
				item.Value = of(answer, some[at])
			}
			all = append(all, item)
		}
	}
	return all, nil
}

// one is the only result; an error of the item is an error.
func one[T any](all []Result[T], err error) (T, error) {
	var none T
	if err != nil {
		return none, err
	}
	if e := all[0].Err; e != nil {
		status := 400
		if e.Retryable() {
			status = 503
		}
		return none, &APIError{
			Status: status, Code: e.Code, Detail: e.Detail, Field: e.Field, RequestID: e.RequestID, isRetryable: e.isPassing,
		}
	}
	return all[0].Value, nil
}

func isCode(err error, code string) bool {
	var refused *APIError
	return errors.As(err, &refused) && refused.Code == code
}
