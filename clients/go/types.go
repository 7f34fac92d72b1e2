// Package duetime is the client of Duetime: messages delivered at their due time, and cancelled before it.
package duetime

import (
	"encoding/json"
	"fmt"
	"time"
)

// EnqueueOutcome says what became of an enqueue.
type EnqueueOutcome string

// CancelOutcome says what became of a cancel.
type CancelOutcome string

// RescheduleOutcome says what became of a reschedule.
type RescheduleOutcome string

// SettleOutcome says what became of an ack, nack, release or extend.
type SettleOutcome string

// The outcomes. After CancelDone a message is never delivered; SettleCancelled: undo what was done.
const (
	EnqueueScheduled EnqueueOutcome = "scheduled"
	EnqueueReplaced  EnqueueOutcome = "replaced"
	// EnqueueKept: by OnConflict, the message that is there stays.
	EnqueueKept      EnqueueOutcome = "kept"
	EnqueueDuplicate EnqueueOutcome = "duplicate"
	// EnqueueCancelledBefore: its cancel came first, and holds.
	EnqueueCancelledBefore EnqueueOutcome = "cancelled_before"

	CancelDone     CancelOutcome = "cancelled"
	CancelInFlight CancelOutcome = "in_flight"
	CancelUnknown  CancelOutcome = "unknown"
	// CancelDelivered and CancelDead: it came too late, as a topic with remember knows.
	CancelDelivered CancelOutcome = "delivered"
	CancelDead      CancelOutcome = "dead"
	// CancelMoved: it lives elsewhere; cancel it there.
	CancelMoved   CancelOutcome = "moved"
	CancelExpired CancelOutcome = "expired"

	RescheduleDone     RescheduleOutcome = "rescheduled"
	RescheduleInFlight RescheduleOutcome = "in_flight"
	RescheduleDead     RescheduleOutcome = "dead"
	RescheduleUnknown  RescheduleOutcome = "unknown"

	SettleOK        SettleOutcome = "ok"
	SettleAlready   SettleOutcome = "already"
	SettleCancelled SettleOutcome = "cancelled"
	SettleExpired   SettleOutcome = "expired"
	SettleGone      SettleOutcome = "gone"
)

// retryable holds the codes of an item's refusal that time alone may cure, for a node that does not say so itself.
var retryable = map[string]bool{
	"busy": true, "clock_skew": true, "draining": true, "rate_limited": true, "routing_changing": true,
	"store_unavailable": true, "timeout": true,
}

// OnConflict says which of two messages of one id that wait is kept, whole; what somebody holds is replaced.
type OnConflict string

// The one that is due earlier, or later; of two that are due at once, the first. The other outcome is EnqueueKept.
const (
	OnConflictEarliest OnConflict = "earliest"
	OnConflictLatest   OnConflict = "latest"
)

// NewMessage is a message to enqueue. The client makes an ID if there is none, so that a repetition is a duplicate.
type NewMessage struct {
	ID string
	// Payload: a string and []byte are delivered as they are, nil as nothing, any other value as its JSON.
	Payload any
	// Delay until it falls due, zero: that of the topic; not together with DueAt.
	Delay time.Duration
	// DueAt is when it falls due; the zero time: after Delay.
	DueAt   time.Time
	Headers map[string]string
	// Replace replaces a message of the same id; else it stays, and the outcome is EnqueueDuplicate.
	Replace bool
	// OnConflict is another rule for an id that is there; not together with Replace.
	OnConflict OnConflict
	// Expires is how long after its due time it may be handed over, zero: it does not expire; not together with
	// ExpiresAt.
	Expires time.Duration
	// ExpiresAt is until when it may be handed over; the zero time: it does not expire.
	ExpiresAt time.Time
	// MaxAttempts is how many times it is delivered before it is a dead letter, 1 to 99; zero: as its topic says.
	MaxAttempts int
	// VisibilityTimeout is how long a claim that asks for none hides it, 100 ms to 24 h; zero: as long as its topic says.
	VisibilityTimeout time.Duration
	// Repeat is the rule by which it comes again, under the same id; nil: it comes once.
	Repeat *Repeat
}

// Repeat is a rule by which a message comes again: Every or Cron. The next one is written in the step that ends the one
// before, so none is lost and none comes twice by that. A cancel ends the series.
type Repeat struct {
	// Every is how long after the one before the next one falls due, counted from the first: 1 s to 10 years.
	Every time.Duration
	// Cron has its times: minute, hour, day of the month, month, day of the week.
	Cron string
	// TimeZone is by whose clocks Cron goes, as IANA names it; empty: UTC.
	TimeZone string
	// Until is the moment after which none falls due; zero: there is none.
	Until time.Time
	// Times is how many there are, with the first; zero: no end.
	Times int
	// Missed says what becomes of times that pass while the one before is not settled: skip (also empty) or once.
	Missed string
}

// RepeatRule is the rule of a message as it is read.
type RepeatRule struct {
	// Every is a duration, as 1h; empty where Cron is not.
	Every    string
	Cron     string
	TimeZone string
	Until    time.Time
	// Times is how many there are still, this one among them; zero: no end.
	Times  int
	Missed string
	// NextAt is when the one after this falls due if this one ends when it is due, or now; zero: this is the last.
	NextAt time.Time
}

// Became is what became of a message that is gone, as a topic with remember knows.
type Became struct {
	// Outcome: delivered, cancelled, cancelled_in_flight (it may have been delivered), dead, expired, cancelled_before
	// (there was none), or moved (it lives elsewhere).
	Outcome string
	// At is when it ended, by the clock of the store.
	At time.Time
	// Attempts is how often it was tried; nil where there was no message.
	Attempts *int
	// DueAt is the due time it had, the zero time where that is not known.
	DueAt time.Time
	// LateBy is how long after its due time it was delivered.
	LateBy time.Duration
	// Version is the one that moved, of one that lives elsewhere.
	Version string
}

// Enqueued is what became of an enqueue. Of a duplicate the earlier message stays as it was.
type Enqueued struct {
	ID      string
	Outcome EnqueueOutcome
	Shard   int
	// DueAt is when it falls due; of a duplicate the zero time where the store does not know it.
	DueAt time.Time
	// Smeared is how much later than asked for that is, where the topic has a smear.
	Smeared time.Duration
	// LateBy is how much the DueAt that was asked for was past already.
	LateBy time.Duration
	// InFlight: it was replaced while a consumer or sink held it, which may deliver the old content.
	InFlight bool
	// Replicas of Redis that have it, where the node waits for them.
	Replicas *int
	// Repeated: an earlier try of this call may have been carried out, so a duplicate may be this very message.
	Repeated bool
	// Became is what became of the message that had its id, where that is gone and the topic remembers.
	Became *Became
}

// Cancelled is what became of a cancel.
type Cancelled struct {
	ID       string
	Outcome  CancelOutcome
	Replicas *int
	// Repeated: an earlier try of this call may have been carried out; with CancelUnknown, it may have cancelled it.
	Repeated bool
	// Became is what became of the message before, where it is gone and the topic remembers.
	Became *Became
}

// Rescheduled is what became of a reschedule.
type Rescheduled struct {
	ID       string
	Outcome  RescheduleOutcome
	DueAt    time.Time
	Smeared  time.Duration
	LateBy   time.Duration
	Replicas *int
}

// Settled is what became of an ack, nack, release or extend. SettleAlready counts as SettleOK.
type Settled struct {
	Outcome SettleOutcome
	ID      string
	// Receipt counts from now on, after an extension.
	Receipt  string
	Replicas *int
}

// Result is what became of one item of many: Value, or Err if it was refused or failed.
type Result[T any] struct {
	Value T
	Err   *ItemError
}

// ItemError is one item of many that was refused or failed; the others were not.
type ItemError struct {
	Code   string
	Detail string
	// Index is which item of the call it was, from 0.
	Index int
	ID    string
	Field string
	// RequestID is the id of the request that it was in.
	RequestID string
	isPassing bool
}

func (e *ItemError) Error() string {
	return fmt.Sprintf("item %d: %s (%s%s)", e.Index, e.Detail, e.Code, named(", ", e.RequestID))
}

// Retryable is true if the same item may succeed later.
func (e *ItemError) Retryable() bool { return e.isPassing }

// Death says why and when a message became a dead letter.
type Death struct {
	At     time.Time
	Reason string
}

// Message is a message as its shard holds it.
type Message struct {
	ID string
	// State is scheduled, in_flight or dead.
	State string
	DueAt time.Time
	// VisibleAt is when it may be claimed (again).
	VisibleAt time.Time
	// Version is what it is now: another one after each change. Empty while it is claimed, and of a dead letter.
	Version string
	// ExpiresAt is until when it may be handed over; the zero time: it does not expire.
	ExpiresAt time.Time
	Attempts  int
	// MaxAttempts is how many times it is delivered before it is a dead letter; zero: as its topic says.
	MaxAttempts int
	// VisibilityTimeout is how long a claim hides it, as 5m; empty: as its topic says.
	VisibilityTimeout string
	// Repeat is the rule by which it comes again; nil: it comes once.
	Repeat   *RepeatRule
	Redrives int
	Shard    int
	Payload  []byte
	Headers  map[string]string
	Death    *Death
}

// Claimed is what a claim brought, and what became of the receipts that were acked before it.
type Claimed struct {
	Messages []ClaimedMessage
	// Results has one for each receipt of ack, in order.
	Results []Result[Settled]
	// Err is why nothing could be claimed after the acks, an *APIError; nil if it could.
	Err error
}

// ClaimedAny is what a claim over several topics brought, all of one of them.
type ClaimedAny struct {
	// Topic is whose messages these are, and where they are settled; "": nothing fell due in time.
	Topic    string
	Messages []ClaimedMessage
	// Failed are the topics that could not be claimed from, though others could.
	Failed []ClaimFailure
	// Results has one for each receipt of ack, in order.
	Results []Result[Settled]
	// Err is why nothing could be claimed after the acks, an *APIError; nil if it could.
	Err error
}

// ClaimFailure is a topic that could not be claimed from.
type ClaimFailure struct {
	Topic  string `json:"topic"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
	// Retryable: it may answer later, without anybody doing anything else.
	Retryable bool `json:"retryable"`
}

// ClaimedMessage is a claimed message. Settle it by its receipt before its visibility timeout ends.
type ClaimedMessage struct {
	ID      string
	Receipt string
	DueAt   time.Time
	// Attempt is which attempt this is, from 1.
	Attempt int
	// DeliveryID is the same for every attempt of one message: compare it to see a message once.
	DeliveryID string
	Payload    []byte
	Headers    map[string]string
	// Deadline is when others may have it, by the store's clock; zero where nothing is to be settled (at-most-once).
	Deadline time.Time
	// Traceparent is the span that handling it belongs to (W3C Trace Context).
	Traceparent string
}

// Settings of a topic, in the names of the API: "visibility_timeout": "30s", "shards": 8.
type Settings map[string]any

// TopicInfo is a topic: its settings as they apply, and its counts.
type TopicInfo struct {
	Name       string
	ShardCount int
	// Version grows by one with every change.
	Version   int64
	CreatedAt time.Time
	Scheduled int64
	Due       int64
	InFlight  int64
	Dead      int64
	// OldestDueAt is when the first message that is due fell due; zero when none is.
	OldestDueAt time.Time
	// Raw has the settings and all else that the node answered.
	Raw json.RawMessage
}

// Nack says how a message goes back that was not done.
type Nack struct {
	// Delay until the next attempt; the topic's backoff if nil.
	Delay *time.Duration
	// Reason for people, of up to 400 characters.
	Reason string
	// Dead makes it a dead letter at once.
	Dead bool
}

// APIError is a refusal by the node: RFC 9457 problem details. Code is for programs, Detail says what to do.
type APIError struct {
	Status int
	Code   string
	Title  string
	Detail string
	// Field of the request that is to blame.
	Field string
	// RetryAfter is how long to wait, as the node said.
	RetryAfter time.Duration
	// RequestID is the id of the request, which the lines of the node's log about it have.
	RequestID   string
	isRetryable bool
}

func (e *APIError) Error() string {
	return fmt.Sprintf("duetime: %s (%d %s%s)", e.Detail, e.Status, e.Code, named(", ", e.RequestID))
}

// named is what the text of an error says of its request.
func named(before, requestID string) string {
	if requestID == "" {
		return ""
	}
	return before + "request " + requestID
}

// Retryable is true if the same request may succeed later without anybody doing anything else: as the node said, or, of
// what stands before it, by the status.
func (e *APIError) Retryable() bool { return e.isRetryable }

// isPassingStatus says whether another answer than this may come later.
func isPassingStatus(status int) bool {
	return status == 429 || status == 502 || status == 503 || status == 504
}

// NoAnswerError says that no answer came: no connection, one that broke, or none in time.
type NoAnswerError struct {
	// MaybeDone: the node may have carried the request out.
	MaybeDone bool
	Err       error
	// RequestID is the id of the request, where the client was given one.
	RequestID string
}

func (e *NoAnswerError) Error() string {
	doubt := "nothing was done"
	if e.MaybeDone {
		doubt = "whether it was done is unknown"
	}
	return fmt.Sprintf("duetime: no answer: %v; %s%s", e.Err, doubt, named("; ", e.RequestID))
}

func (e *NoAnswerError) Unwrap() error { return e.Err }

// ForeignAnswerError says that the answer is not one of a node; most likely the address is another server's.
type ForeignAnswerError struct {
	Shown string
	// RequestID is the id of the request, where the answer has one.
	RequestID string
}

func (e *ForeignAnswerError) Error() string {
	text := "duetime: this is no answer of a node (%s); is the address right?%s"
	return fmt.Sprintf(text, e.Shown, named("; ", e.RequestID))
}
