package duetime

import (
	"errors"
	"testing"
	"time"
)

func TestAWatermarkIsWaitedForLongerThanAnotherAnswerAndSaysWhatHoldsItBack(t *testing.T) {
	r := newRig(t, Options{Timeout: 2 * time.Second, RetryFor: -1})
	r.create(Settings{"watermark": true})
	must(r.beside.Enqueue(ctx, NewMessage{ID: "a", Payload: "x"}))
	message := must(r.beside.Claim(ctx, 1, 5*time.Second, 0)).Messages[0]
	until := message.DueAt.Add(time.Millisecond)
	// The time-out of the client would be over before.
	held := must(r.topic.Watermark(ctx, until, 3*time.Second))
	equal(t, held.Watermark, message.DueAt)
	equal(t, held.Reached, false)
	if held.HeldBy == nil || held.HeldBy.Shard == nil {
		t.Fatalf("nothing holds it back: %+v", held)
	}
	equal(t, *held.HeldBy, HeldBy{HeldInFlight, held.HeldBy.Shard, "a", message.DueAt, message.Deadline})
	must(r.beside.Ack(ctx, []string{message.Receipt}))
	reached := must(r.beside.Watermark(ctx, until, 30*time.Second))
	equal(t, reached.Reached, true)
	now := must(r.topic.Watermark(ctx, time.Time{}, 0))
	equal(t, now.Reached, false)
	equal(t, reached.HeldBy == nil && now.HeldBy == nil, true)
	equal(t, until.After(reached.Watermark) || reached.Watermark.After(now.Watermark), false)
}

func TestATopicWithoutAWatermarkRefusesIt(t *testing.T) {
	r := newRig(t, Options{})
	r.create(nil)
	_, err := r.topic.Watermark(ctx, time.Time{}, 0)
	var refused *APIError
	equal(t, errors.As(err, &refused) && refused.Status == 409 && refused.Code == "topic_has_no_watermark", true)
}
