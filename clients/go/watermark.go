package duetime

import (
	"context"
	"fmt"
	"time"
)

// HeldReason is why a watermark is not later.
type HeldReason string

const (
	// HeldDue: a message waits to be claimed.
	HeldDue HeldReason = "due"
	// HeldInFlight: a message waits for the settlement of its claim.
	HeldInFlight HeldReason = "in_flight"
	// HeldRetrying: a message waits for its next attempt.
	HeldRetrying HeldReason = "retrying"
	// HeldMoving: a message waits for the end of its move to another shard.
	HeldMoving HeldReason = "moving"
	// HeldShardUnreachable: a shard does not answer.
	HeldShardUnreachable HeldReason = "shard_unreachable"
	// HeldResizing: the shard count changes, and not all shards have heard of it.
	HeldResizing HeldReason = "resizing"
)

// HeldBy is what keeps a watermark from being later.
type HeldBy struct {
	Reason HeldReason
	// Shard is nil for HeldResizing.
	Shard *int
	// ID of the message, and its due time.
	ID    string
	DueAt time.Time
	// Until is when its claim runs out, or its next attempt is due.
	Until time.Time
}

// Watermark is up to when a topic is done.
type Watermark struct {
	// Watermark: everything that was due before this moment is done. It never goes back.
	Watermark time.Time
	// Reached: it is the moment that was waited for, or later.
	Reached bool
	// HeldBy is nil where nothing holds it back: it is the present.
	HeldBy *HeldBy
}

// Watermark returns up to when the topic is done: everything that was due before it is settled, cancelled, expired or
// dead. Unless until is zero, it waits up to wait (60 s at most) for the watermark to be that moment or later, see
// Watermark.Reached. For a topic that was created with "watermark": true; of another it is refused,
// "topic_has_no_watermark".
func (t *Topic) Watermark(ctx context.Context, until time.Time, wait time.Duration) (Watermark, error) {
	if t.err != nil {
		return Watermark{}, t.err
	}
	r := request{method: "GET", path: t.path + "/watermark"}
	if !until.IsZero() {
		r.path += fmt.Sprintf("?until=%d&wait=%s", moment(until), millis(wait))
		r.wait = wait
	}
	answered, err := t.transport.do(ctx, r)
	if err != nil {
		return Watermark{}, err
	}
	found, err := readKnown[answerWatermark](answered)
	if err != nil {
		return Watermark{}, err
	}
	return found.watermark(), nil
}

type answerWatermark struct {
	Watermark *ms         `json:"watermark"`
	Reached   bool        `json:"reached"`
	HeldBy    *answerHeld `json:"held_by"`
}

type answerHeld struct {
	Reason string `json:"reason"`
	Shard  *int   `json:"shard"`
	ID     string `json:"id"`
	DueAt  *ms    `json:"due_at"`
	Until  *ms    `json:"until"`
}

func (a answerWatermark) isThere() bool { return a.Watermark != nil }

func (a answerWatermark) watermark() Watermark {
	w := Watermark{Watermark: a.Watermark.time(), Reached: a.Reached}
	if h := a.HeldBy; h != nil {
		w.HeldBy = &HeldBy{HeldReason(h.Reason), h.Shard, h.ID, h.DueAt.time(), h.Until.time()}
	}
	return w
}
