package duetime

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// How much of an answer that is not understood is shown.
	shownMax = 200
	// Longest reason of a nack.
	reasonCharsMax = 400
	// The header of the id of a request, in requests and in answers, and the longest one that a node takes.
	requestIDHeader = "X-Request-Id"
	requestIDMax    = 64
	// The lowest status that no done request has.
	refusalMin = 300
	// Longest pause that is taken from a node or a balancer.
	retryAfterMax = 24 * time.Hour
)

// makeID makes a UUID of version 7.
func makeID() string {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic("duetime: no random numbers: " + err.Error())
	}
	var now [8]byte
	binary.BigEndian.PutUint64(now[:], uint64(time.Now().UnixMilli()))
	copy(b[:6], now[2:])
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// takenID is an id of a request if a node takes it; another one, such as a stranger sent, is "".
func takenID(id string) string {
	isPlain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:/+=", r)
	}
	if len(id) > requestIDMax || strings.IndexFunc(id, func(r rune) bool { return !isPlain(r) }) >= 0 {
		return ""
	}
	return id
}

// part encodes one part of a path once. Proxies take one of dots for a step in the path.
func part(text string) (string, error) {
	if text == "." || text == ".." {
		return "", fmt.Errorf("duetime: %q cannot be a part of a path; cancel a message of that id with CancelMany", text)
	}
	return strings.ReplaceAll(url.QueryEscape(text), "+", "%20"), nil
}

// millis writes a duration; parts of a millisecond are rounded up.
func millis(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10) + "ms"
}

// moment writes a time in milliseconds since the Unix epoch, rounded up.
func moment(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		ms++
	}
	return ms
}

func due(delay time.Duration, at time.Time) (map[string]any, error) {
	if delay < 0 {
		return nil, fmt.Errorf("duetime: the delay %v is negative", delay)
	}
	if delay != 0 && !at.IsZero() {
		return nil, errors.New("duetime: Delay and DueAt are both given; give one of them")
	}
	if delay != 0 {
		return map[string]any{"delay": millis(delay)}, nil
	}
	if at.IsZero() {
		return map[string]any{}, nil
	}
	return map[string]any{"due_at": moment(at)}, nil
}

// line is a message as JSON on one line, and its id.
type line struct {
	id     string
	text   []byte
	isMade bool
}

func lineOf(m NewMessage) (line, error) {
	id, isMade := m.ID, m.ID == ""
	if isMade {
		id = makeID()
	}
	fields, err := due(m.Delay, m.DueAt)
	if err != nil {
		return line{}, err
	}
	fields["id"] = id
	switch payload := m.Payload.(type) {
	case nil:
	case []byte:
		if len(payload) > 0 {
			fields["payload_base64"] = base64.StdEncoding.EncodeToString(payload)
		}
	default:
		fields["payload"] = payload
	}
	if m.Headers != nil {
		fields["headers"] = m.Headers
	}
	if m.Expires != 0 && !m.ExpiresAt.IsZero() {
		return line{}, errors.New("duetime: Expires and ExpiresAt are both given; give one of them")
	}
	if m.Expires != 0 {
		fields["expires"] = millis(m.Expires)
	} else if !m.ExpiresAt.IsZero() {
		fields["expires_at"] = moment(m.ExpiresAt)
	}
	if m.MaxAttempts != 0 {
		fields["max_attempts"] = m.MaxAttempts
	}
	if m.VisibilityTimeout != 0 {
		fields["visibility_timeout"] = millis(m.VisibilityTimeout)
	}
	if m.Repeat != nil {
		fields["repeat"] = m.Repeat.fields()
	}
	if m.Replace && m.OnConflict != "" {
		return line{}, errors.New("duetime: Replace and OnConflict are both given; give one of them")
	}
	if m.Replace {
		fields["on_conflict"] = "replace"
	} else if m.OnConflict != "" {
		fields["on_conflict"] = m.OnConflict
	}
	text, err := encode(fields)
	return line{id, text, isMade}, err
}

func (r *Repeat) fields() map[string]any {
	fields := map[string]any{}
	if r.Every != 0 {
		fields["every"] = millis(r.Every)
	}
	for name, text := range map[string]string{"cron": r.Cron, "time_zone": r.TimeZone, "missed": r.Missed} {
		if text != "" {
			fields[name] = text
		}
	}
	if !r.Until.IsZero() {
		fields["until"] = moment(r.Until)
	}
	if r.Times != 0 {
		fields["times"] = r.Times
	}
	return fields
}

// encode writes JSON as the value is: signs that HTML knows stay as they are.
func encode(value any) ([]byte, error) {
	var out bytes.Buffer
	to := json.NewEncoder(&out)
	to.SetEscapeHTML(false)
	if err := to.Encode(value); err != nil {
		return nil, fmt.Errorf("duetime: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

func nackFields(n Nack) map[string]any {
	fields := map[string]any{}
	if n.Delay != nil {
		fields["delay"] = millis(*n.Delay)
	}
	if n.Reason != "" {
		reason := []rune(n.Reason)
		if len(reason) > reasonCharsMax {
			reason = reason[:reasonCharsMax]
		}
		fields["reason"] = string(reason)
	}
	if n.Dead {
		fields["dead"] = true
	}
	return fields
}

// ms is a time in milliseconds since the Unix epoch.
type ms int64

func (m *ms) time() time.Time {
	if m == nil {
		return time.Time{}
	}
	return time.UnixMilli(int64(*m)).UTC()
}

// answerItem is any of the small answers; fields that a newer node adds are ignored.
type answerItem struct {
	ID        string   `json:"id"`
	Outcome   string   `json:"outcome"`
	Shard     int      `json:"shard"`
	DueAt     *ms      `json:"due_at"`
	SmearedMs int64    `json:"smeared_ms"`
	LateByMs  int64    `json:"late_by_ms"`
	InFlight  bool     `json:"in_flight"`
	Receipt   string   `json:"receipt"`
	Replicas  *int     `json:"replicas"`
	Error     *refusal `json:"error"`
	Became    *became  `json:"became"`
}

type became struct {
	Outcome  string `json:"outcome"`
	At       ms     `json:"at"`
	Attempts *int   `json:"attempts"`
	DueAt    *ms    `json:"due_at"`
	LateByMs int64  `json:"late_by_ms"`
	Version  string `json:"version"`
}

func (b *became) told() *Became {
	if b == nil {
		return nil
	}
	return &Became{
		Outcome: b.Outcome, At: b.At.time(), Attempts: b.Attempts, DueAt: b.DueAt.time(), LateBy: asMillis(b.LateByMs),
		Version: b.Version,
	}
}

type refusal struct {
	Code      string `json:"code"`
	Detail    string `json:"detail"`
	Field     string `json:"field"`
	Retryable *bool  `json:"retryable"`
	// Of the request, which its item does not have.
	requestID string
}

// isThere is true if it is what became of an item; an answer that is not a node's has none.
func (a answerItem) isThere() bool { return a.Outcome != "" || a.Error != nil }

func (a answerItem) isPassing() bool { return a.Error != nil && a.Error.isPassing() }

// isPassing says whether time alone may cure it: as the node says, or, where it does not, by the code.
func (r refusal) isPassing() bool {
	if r.Retryable != nil {
		return *r.Retryable
	}
	return retryable[r.Code]
}

func (a answerItem) err(index int) *ItemError {
	if a.Error == nil {
		return nil
	}
	e := a.Error
	return &ItemError{
		Code: e.Code, Detail: e.Detail, Field: e.Field, Index: index, ID: a.ID, RequestID: e.requestID,
		isPassing: e.isPassing(),
	}
}

func (a answerItem) enqueued(repeated, isMade bool) Enqueued {
	outcome := EnqueueOutcome(a.Outcome)
	if outcome == EnqueueDuplicate && isMade && repeated {
		// No one else has an id that was made here: an earlier try stored it.
		outcome = EnqueueScheduled
	}
	return Enqueued{
		ID: a.ID, Outcome: outcome, Shard: a.Shard, DueAt: a.DueAt.time(), Smeared: asMillis(a.SmearedMs),
		LateBy: asMillis(a.LateByMs), InFlight: a.InFlight, Replicas: a.Replicas, Repeated: repeated,
		Became: a.Became.told(),
	}
}

func (a answerItem) cancelled(id string, repeated bool) Cancelled {
	return Cancelled{ID: id, Outcome: CancelOutcome(a.Outcome), Replicas: a.Replicas, Repeated: repeated, Became: a.Became.told()}
}

func (a answerItem) rescheduled(id string) Rescheduled {
	return Rescheduled{
		ID: id, Outcome: RescheduleOutcome(a.Outcome), DueAt: a.DueAt.time(), Smeared: asMillis(a.SmearedMs),
		LateBy: asMillis(a.LateByMs), Replicas: a.Replicas,
	}
}

func (a answerItem) settled() Settled {
	return Settled{Outcome: SettleOutcome(a.Outcome), ID: a.ID, Receipt: a.Receipt, Replicas: a.Replicas}
}

func asMillis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

type answerMessage struct {
	ID            string            `json:"id"`
	State         string            `json:"state"`
	Receipt       string            `json:"receipt"`
	DueAt         *ms               `json:"due_at"`
	VisibleAt     *ms               `json:"visible_at"`
	ExpiresAt     *ms               `json:"expires_at"`
	Version       string            `json:"version"`
	Deadline      *ms               `json:"deadline"`
	Attempt       int               `json:"attempt"`
	Attempts      int               `json:"attempts"`
	MaxAttempts   int               `json:"max_attempts"`
	Visibility    string            `json:"visibility_timeout"`
	Repeat        *answerRepeat     `json:"repeat"`
	Redrives      int               `json:"redrives"`
	Shard         int               `json:"shard"`
	DeliveryID    string            `json:"delivery_id"`
	Payload       *string           `json:"payload"`
	PayloadBase64 []byte            `json:"payload_base64"`
	Headers       map[string]string `json:"headers"`
	Traceparent   string            `json:"traceparent"`
	Death         *struct {
		At     *ms    `json:"at"`
		Reason string `json:"reason"`
	} `json:"death"`
}

func (a answerMessage) isThere() bool { return a.ID != "" }

func (a answerMessage) payload() []byte {
	if a.Payload != nil {
		return []byte(*a.Payload)
	}
	return a.PayloadBase64
}

type answerRepeat struct {
	Every    string `json:"every"`
	Cron     string `json:"cron"`
	TimeZone string `json:"time_zone"`
	Until    *ms    `json:"until"`
	Times    int    `json:"times"`
	Missed   string `json:"missed"`
	NextAt   *ms    `json:"next_at"`
}

func (a answerMessage) message() *Message {
	m := &Message{
		ID: a.ID, State: a.State, DueAt: a.DueAt.time(), VisibleAt: a.VisibleAt.time(), Attempts: a.Attempts,
		Version: a.Version, ExpiresAt: a.ExpiresAt.time(), MaxAttempts: a.MaxAttempts, Redrives: a.Redrives, Shard: a.Shard,
		Payload: a.payload(), Headers: a.Headers, VisibilityTimeout: a.Visibility,
	}
	if r := a.Repeat; r != nil {
		m.Repeat = &RepeatRule{r.Every, r.Cron, r.TimeZone, r.Until.time(), r.Times, r.Missed, r.NextAt.time()}
	}
	if a.Death != nil {
		m.Death = &Death{At: a.Death.At.time(), Reason: a.Death.Reason}
	}
	return m
}

func (a answerMessage) claimed() ClaimedMessage {
	return ClaimedMessage{
		ID: a.ID, Receipt: a.Receipt, DueAt: a.DueAt.time(), Attempt: a.Attempt, DeliveryID: a.DeliveryID,
		Payload: a.payload(), Headers: a.Headers, Deadline: a.Deadline.time(), Traceparent: a.Traceparent,
	}
}

type answerClaim struct {
	Messages []answerMessage `json:"messages"`
	Results  []answerItem    `json:"results"`
	Error    *problemBody    `json:"error"`
}

type answerClaimAny struct {
	Topic    string          `json:"topic"`
	Messages []answerMessage `json:"messages"`
	Failed   []ClaimFailure  `json:"failed"`
	Results  []answerItem    `json:"results"`
	Error    *problemBody    `json:"error"`
}

// isThere is true of a claim that brought none, too: it says so.
func (a answerClaim) isThere() bool { return a.Messages != nil }

func (a answerClaimAny) isThere() bool { return a.Messages != nil }

// claimed reads what a claim brought.
func (a answerClaim) claimed(headers http.Header) Claimed {
	requestID := headers.Get(requestIDHeader)
	var c Claimed
	for _, m := range a.Messages {
		c.Messages = append(c.Messages, m.claimed())
	}
	for at, each := range a.Results {
		if each.Error != nil {
			each.Error.requestID = requestID
		}
		r := Result[Settled]{Err: each.err(at)}
		if r.Err == nil {
			r.Value = each.settled()
		}
		c.Results = append(c.Results, r)
	}
	if e := a.Error; e != nil {
		c.Err = e.refusal(e.Status, headers)
	}
	return c
}

type answerTopic struct {
	Name        string `json:"name"`
	ShardCount  int    `json:"shard_count"`
	Version     int64  `json:"version"`
	CreatedAt   *ms    `json:"created_at"`
	Scheduled   int64  `json:"scheduled"`
	Due         int64  `json:"due"`
	InFlight    int64  `json:"in_flight"`
	Dead        int64  `json:"dead"`
	OldestDueAt *ms    `json:"oldest_due_at"`
}

type answerTopics struct {
	Topics []json.RawMessage `json:"topics"`
}

func (a answerTopics) isThere() bool { return a.Topics != nil }

func topicInfo(raw json.RawMessage) (*TopicInfo, error) {
	var a answerTopic
	if err := read(raw, nil, &a); err != nil {
		return nil, err
	}
	if a.Name == "" {
		return nil, foreign(0, nil, raw)
	}
	return &TopicInfo{
		Name: a.Name, ShardCount: a.ShardCount, Version: a.Version, CreatedAt: a.CreatedAt.time(), Scheduled: a.Scheduled,
		Due: a.Due, InFlight: a.InFlight, Dead: a.Dead, OldestDueAt: a.OldestDueAt.time(), Raw: raw,
	}, nil
}

func read(body []byte, headers http.Header, to any) error {
	if err := json.Unmarshal(body, to); err != nil {
		return foreign(0, headers, body)
	}
	return nil
}

// readKnown reads an answer that a node gives; one of another server that can be read too has nothing of it.
func readKnown[T interface{ isThere() bool }](answered answer) (T, error) {
	var found T
	err := read(answered.body, answered.headers, &found)
	if err == nil && !found.isThere() {
		err = foreign(0, answered.headers, answered.body)
	}
	return found, err
}

func foreign(status int, headers http.Header, body []byte) error {
	if len(body) > shownMax {
		body = body[:shownMax]
	}
	return &ForeignAnswerError{fmt.Sprintf("status %d, %q", status, body), headers.Get(requestIDHeader)}
}
