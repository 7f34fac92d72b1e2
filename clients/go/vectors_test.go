package duetime

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"sort"
	"strings"
	"testing"
	"time"
)

type object = map[string]any

type vector struct {
	Name, Op  string
	Args      object
	RequestID string `json:"request_id"`
	Request   struct {
		Method, Path string
		Body         any
	}
	Answer struct {
		Status  int
		Headers map[string]string
		Body    json.RawMessage
	}
	Result any
}

func vectors(name string, to any) {
	text := must(os.ReadFile("../vectors/" + name + ".json"))
	if err := json.Unmarshal(text, to); err != nil {
		panic(err)
	}
}

// roundTrip answers requests without a network.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func when(args object) (delay time.Duration, at time.Time) {
	if n, ok := args["delay_ms"].(float64); ok {
		delay = time.Duration(n) * time.Millisecond
	}
	if n, ok := args["due_at"].(float64); ok {
		at = time.UnixMilli(int64(n))
	}
	return delay, at
}

func text(args object, name string) string {
	found, _ := args[name].(string)
	return found
}

func newMessage(args object) NewMessage {
	m := NewMessage{ID: text(args, "id"), Replace: args["on_conflict"] == "replace"}
	if !m.Replace {
		m.OnConflict = OnConflict(text(args, "on_conflict"))
	}
	m.Delay, m.DueAt = when(args)
	if n, ok := args["expires_ms"].(float64); ok {
		m.Expires = time.Duration(n) * time.Millisecond
	}
	if n, ok := args["expires_at"].(float64); ok {
		m.ExpiresAt = time.UnixMilli(int64(n))
	}
	if n, ok := args["max_attempts"].(float64); ok {
		m.MaxAttempts = int(n)
	}
	if rule, ok := args["repeat"].(map[string]any); ok {
		m.Repeat = &Repeat{
			Cron: rule["cron"].(string), TimeZone: rule["time_zone"].(string),
			Times: int(rule["times"].(float64)), Missed: rule["missed"].(string),
		}
	}
	if n, ok := args["own_visibility_ms"].(float64); ok {
		m.VisibilityTimeout = time.Duration(n) * time.Millisecond
	}
	if payload, ok := args["payload_base64"].(string); ok {
		m.Payload = must(base64.StdEncoding.DecodeString(payload))
	} else if payload, ok := args["payload_text"]; ok {
		m.Payload = payload
	} else {
		m.Payload = args["payload_json"]
	}
	if headers, ok := args["headers"].(object); ok {
		m.Headers = map[string]string{}
		for name, value := range headers {
			m.Headers[name] = value.(string)
		}
	}
	return m
}

func texts(value any) (all []string) {
	for _, each := range value.([]any) {
		all = append(all, each.(string))
	}
	return all
}

func ask(c *Client, op string, args object) (any, error) {
	topic := c.Topic(text(args, "topic"))
	number := func(name string) time.Duration {
		n, _ := args[name].(float64)
		return time.Duration(n) * time.Millisecond
	}
	switch op {
	case "topics":
		return c.Topics(ctx)
	case "create":
		return topic.Create(ctx, args["settings"].(object))
	case "info":
		return topic.Info(ctx)
	case "watermark":
		var until time.Time
		if n, ok := args["until"].(float64); ok {
			until = time.UnixMilli(int64(n))
		}
		return topic.Watermark(ctx, until, number("wait_ms"))
	case "delete":
		return topic.Delete(ctx, args["force"] == true)
	case "enqueue":
		return topic.Enqueue(ctx, newMessage(args))
	case "enqueue_many":
		var messages []NewMessage
		for _, each := range args["messages"].([]any) {
			messages = append(messages, newMessage(each.(object)))
		}
		return topic.EnqueueMany(ctx, messages)
	case "get":
		return topic.Get(ctx, text(args, "id"))
	case "cancel_many":
		return topic.CancelMany(ctx, texts(args["ids"]))
	case "reschedule":
		delay, at := when(args)
		return topic.Reschedule(ctx, text(args, "id"), delay, at)
	case "claim":
		wait, visibility := number("wait_ms"), number("visibility_ms")
		ack, ok := args["ack"].([]any)
		if !ok {
			claimed, err := topic.ClaimAs(ctx, text(args, "consumer"), int(args["max"].(float64)), wait, visibility)
			return claimed.Messages, err
		}
		claimed, err := topic.Claim(ctx, int(args["max"].(float64)), wait, visibility, texts(ack)...)
		found := object{"messages": asWire(reflect.ValueOf(claimed.Messages))}
		found["results"] = asWire(reflect.ValueOf(claimed.Results))
		var refused *APIError
		if errors.As(claimed.Err, &refused) {
			found["error"] = object{"status": refused.Status, "code": refused.Code, "detail": refused.Detail}
		}
		return found, err
	case "ack":
		return topic.Ack(ctx, texts(args["receipts"]))
	case "nack":
		n := Nack{Reason: text(args, "reason"), Dead: args["dead"] == true}
		if delay, _ := when(args); delay != 0 {
			n.Delay = &delay
		}
		return topic.Nack(ctx, texts(args["receipts"]), n)
	case "extend":
		return topic.Extend(ctx, texts(args["receipts"]), number("visibility_ms"))
	case "release":
		return topic.Release(ctx, texts(args["receipts"]))
	}
	panic("no call " + op)
}

// The fields of results in the names of the API, where they are not the ones in Go with other letters.
var names = map[string]string{"ID": "id", "DeliveryID": "delivery_id", "Smeared": "smeared_ms", "LateBy": "late_by_ms",
	"Payload": "payload_base64"}

// Fields that are in an answer also when they are zero.
var always = map[string]bool{"shard": true, "attempts": true, "redrives": true, "scheduled": true, "due": true,
	"in_flight": true, "dead": true, "headers": true, "payload_base64": true, "index": true}

func snake(name string) string {
	if known, ok := names[name]; ok {
		return known
	}
	var out strings.Builder
	for at, letter := range name {
		if letter >= 'A' && letter <= 'Z' && at > 0 {
			out.WriteByte('_')
		}
		out.WriteRune(letter)
	}
	return strings.ToLower(out.String())
}

// asWire is a result in the names and types of the API.
func asWire(value reflect.Value) any {
	switch found := value.Interface().(type) {
	case time.Time:
		return found.UnixMilli()
	case time.Duration:
		return found.Milliseconds()
	case []byte:
		return base64.StdEncoding.EncodeToString(found)
	case *ItemError:
		return object{"error": asWire(reflect.ValueOf(*found))}
	case map[string]string, object:
		return found
	}
	switch value.Kind() {
	case reflect.Pointer:
		if value.IsNil() {
			return nil
		}
		return asWire(value.Elem())
	case reflect.Slice:
		all := []any{}
		for at := 0; at < value.Len(); at++ {
			all = append(all, asWire(value.Index(at)))
		}
		return all
	case reflect.Struct:
		if failed := value.FieldByName("Err"); failed.IsValid() {
			if !failed.IsNil() {
				return asWire(failed)
			}
			return asWire(value.FieldByName("Value"))
		}
		fields := object{}
		for at := 0; at < value.NumField(); at++ {
			name, field := snake(value.Type().Field(at).Name), value.Field(at)
			isOmitted := field.IsZero() && (!always[name] || field.Kind() == reflect.Bool || field.Kind() == reflect.Pointer)
			if name != "raw" && !isOmitted {
				fields[name] = asWire(field)
			}
		}
		return fields
	}
	return value.Interface()
}

// same compares by JSON, in which all numbers are of one type.
func same(t *testing.T, what string, got, wanted any) {
	t.Helper()
	var a, b any
	for _, each := range []struct {
		from any
		to   *any
	}{{got, &a}, {wanted, &b}} {
		if err := json.Unmarshal(must(json.Marshal(each.from)), each.to); err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(a, b) {
		t.Fatalf("%s: got %s, wanted %s", what, must(json.Marshal(a)), must(json.Marshal(b)))
	}
}

func TestACallSendsAndReadsWhatWasRecorded(t *testing.T) {
	var calls, problems []vector
	vectors("calls", &calls)
	vectors("problems", &problems)
	for _, v := range append(calls, problems...) {
		t.Run(v.Name, func(t *testing.T) { replay(t, v) })
	}
}

func replay(t *testing.T, v vector) {
	var sent []*http.Request
	var bodies []string
	answer := func(r *http.Request) (*http.Response, error) {
		sent, bodies = append(sent, r), append(bodies, string(must(io.ReadAll(r.Body))))
		headers := http.Header{}
		for name, value := range v.Answer.Headers {
			headers.Set(name, value)
		}
		body := io.NopCloser(strings.NewReader(string(v.Answer.Body)))
		return &http.Response{StatusCode: v.Answer.Status, Header: headers, Body: body}, nil
	}
	o := Options{Token: "secret", RetryFor: -1, HTTP: &http.Client{Transport: roundTrip(answer)}}
	o.RequestID = func(context.Context) string { return v.RequestID }
	found, err := ask(must(New("http://node", o)), v.Op, v.Args)
	var refused *APIError
	if errors.As(err, &refused) {
		fields := object{"status": refused.Status, "code": refused.Code, "detail": refused.Detail}
		if refused.Field != "" {
			fields["field"] = refused.Field
		}
		if refused.RetryAfter != 0 {
			fields["retry_after"] = refused.RetryAfter.Seconds()
		}
		if refused.RequestID != "" {
			fields["request_id"] = refused.RequestID
		}
		same(t, "error", object{"error": fields}, v.Result)
	} else if err != nil {
		t.Fatal(err)
	} else {
		same(t, "result", asWire(reflect.ValueOf(found)), v.Result)
	}
	equal(t, len(sent), 1)
	r, body := sent[0], bodies[0]
	equal(t, r.Method+" "+r.URL.RequestURI(), v.Request.Method+" "+v.Request.Path)
	equal(t, r.Header.Get("authorization"), "Bearer secret")
	equal(t, r.Header.Get("x-request-id"), v.RequestID)
	equal(t, r.Header.Get(notAfter) != "", r.Method != "GET")
	if v.Request.Body != nil {
		equal(t, r.Header.Get("content-type"), jsonType)
		same(t, "body", json.RawMessage(body), v.Request.Body)
	} else {
		equal(t, body, "")
	}
}

func TestThePathsOfTheAPIAreBelowWhatIsGivenAsTheAddress(t *testing.T) {
	var addresses []struct {
		Name, Address string
		Base          *string
	}
	vectors("addresses", &addresses)
	for _, v := range addresses {
		var sent string
		answer := func(r *http.Request) (*http.Response, error) {
			sent = r.URL.String()
			headers := http.Header{"Content-Type": {jsonType}}
			return &http.Response{StatusCode: 200, Header: headers, Body: io.NopCloser(strings.NewReader(`{"topics":[]}`))}, nil
		}
		c, err := New(v.Address, Options{HTTP: &http.Client{Transport: roundTrip(answer)}})
		equal(t, err != nil, v.Base == nil)
		if err == nil {
			must(c.Topics(ctx))
			equal(t, sent, *v.Base+"/v1/topics")
		}
	}
}

func TestAWebhookIsVerifiedAsRecorded(t *testing.T) {
	var signatures []struct {
		Name    string
		Secrets []string
		Headers map[string]string
		Body    []byte `json:"body_base64"`
		Now     int64
		IsValid bool `json:"is_valid"`
	}
	vectors("signatures", &signatures)
	for _, v := range signatures {
		headers := http.Header{}
		for name, value := range v.Headers {
			headers.Set(name, value)
		}
		// A header that comes on several lines is one.
		lines := headers.Clone()
		lines["Webhook-Signature"] = strings.Fields(v.Headers["webhook-signature"])
		for _, given := range []http.Header{headers, lines} {
			id, err := verifyAt(time.Unix(v.Now, 0), v.Body, given, v.Secrets)
			if v.IsValid != (err == nil) || v.IsValid && id != v.Headers["webhook-id"] {
				t.Errorf("%s: %q, %v", v.Name, id, err)
			}
			if err != nil && !errors.Is(err, ErrInvalidSignature) {
				t.Errorf("%s: %v", v.Name, err)
			}
		}
	}
}

func TestNoSecretAtAllIsAFaultOfTheSetUpWhateverTheWebhookIs(t *testing.T) {
	_, err := Verify(nil, http.Header{})
	equal(t, err != nil && !errors.Is(err, ErrInvalidSignature) && strings.Contains(err.Error(), "no secret"), true)
}

func TestAnIDIsAtHomeWhereTheNodeHasIt(t *testing.T) {
	var topics []struct {
		Seed   uint32
		Shards int
		Homes  map[string]int
	}
	vectors("homes", &topics)
	for _, topic := range topics {
		for id, shard := range topic.Homes {
			equal(t, ShardOf(id, topic.Seed, topic.Shards), shard)
		}
	}
}

// fieldsOf are the names in JSON that a type reads.
func fieldsOf(value any, but ...string) []string {
	var all []string
	for at, kind := 0, reflect.TypeOf(value); at < kind.NumField(); at++ {
		if name := kind.Field(at).Tag.Get("json"); !strings.Contains(strings.Join(but, " "), name) {
			all = append(all, name)
		}
	}
	sort.Strings(all)
	return all
}

func TestTheTypesReadTheFieldsOfTheDocument(t *testing.T) {
	var shapes struct {
		Schemas   map[string]struct{ Fields []string }
		Retryable []string
	}
	vectors("shapes", &shapes)
	union := func(schemas ...string) []string {
		found := map[string]bool{}
		for _, schema := range schemas {
			for _, field := range shapes.Schemas[schema].Fields {
				found[field] = true
			}
		}
		var all []string
		for field := range found {
			all = append(all, field)
		}
		sort.Strings(all)
		return all
	}
	equal(t, fieldsOf(answerItem{}), union("Placed", "OutcomeView", "ItemError"))
	equal(t, fieldsOf(became{}), union("Became"))
	// What a message was before an operator edited it is for operators.
	ofMessage := append(fieldsOf(answerMessage{}), "previous")
	sort.Strings(ofMessage)
	equal(t, ofMessage, union("MessageView", "ClaimedView"))
	equal(t, fieldsOf(answerClaim{}), union("ClaimedViews"))
	equal(t, fieldsOf(answerTopic{}), union("TopicView"))
	equal(t, fieldsOf(answerWatermark{}), union("WatermarkView"))
	equal(t, fieldsOf(answerHeld{}), union("HeldView"))
	// The client counts the items itself.
	ofItem := append(fieldsOf(refusal{}), "index", "line")
	sort.Strings(ofItem)
	equal(t, ofItem, union("ItemProblem"))
	var codes []string
	for code := range retryable {
		codes = append(codes, code)
	}
	sort.Strings(codes)
	equal(t, codes, fmt.Sprint(shapes.Retryable))
}
