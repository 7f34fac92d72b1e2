package duetime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestWhatIsDueIsHandledOnceAndNoMoreIsClaimedThanSlotsAreFree(t *testing.T) {
	r := made(t, 60, nil)
	var handled list[string]
	var held, most atomic.Int64
	handle := func(_ context.Context, d *Delivery) error {
		now := held.Add(1)
		for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
		}
		time.Sleep(20 * time.Millisecond)
		held.Add(-1)
		handled.add(d.ID)
		var body struct{ N int }
		if err := json.Unmarshal(d.Payload, &body); err != nil || fmt.Sprintf("m-%d", body.N) != d.ID {
			return fmt.Errorf("payload %s of %s", d.Payload, d.ID)
		}
		return nil
	}
	c := r.consume(handle, ConsumeOptions{Concurrency: 7})
	until(t, "all are acked", r.isEmpty)
	equal(t, c.stop(), nil)
	equal(t, len(handled.get()), 60)
	equal(t, most.Load() > 1 && most.Load() <= 7, true)
	for _, request := range r.requests("/claim") {
		var body struct{ Max int }
		_ = json.Unmarshal([]byte(request.Body), &body)
		equal(t, body.Max >= 1 && body.Max <= 7, true)
	}
	equal(t, c.errors.get(), []error{})
}

func TestALongHandlerKeepsItsClaim(t *testing.T) {
	r := made(t, 2, nil)
	var attempts list[int]
	// The first beat is cut off; the next one is in time.
	r.fault("cut", "/extend", nil)
	handle := func(ctx context.Context, d *Delivery) error {
		attempts.add(d.Attempt)
		time.Sleep(10 * time.Second)
		return ctx.Err()
	}
	c := r.consume(handle, ConsumeOptions{Visibility: 6 * time.Second})
	until(t, "both are acked", r.isEmpty)
	equal(t, c.stop(), nil)
	equal(t, attempts.get(), []int{1, 1})
	equal(t, len(c.lost.get()), 0)
	equal(t, len(r.requests("/extend")) >= 3, true)
}

func TestAnAckWaitsForTheExtensionThatIsUnderWay(t *testing.T) {
	r := made(t, 1, nil)
	var verdicts list[SettleOutcome]
	r.fault("delay_answer", "/extend", map[string]any{"seconds": 0.4})
	handle := func(ctx context.Context, d *Delivery) error {
		until(t, "it is being extended", func() bool { return len(r.requests("/extend")) > 0 })
		verdicts.add(must(d.Ack(ctx)))
		return nil
	}
	c := r.consume(handle, ConsumeOptions{Visibility: 6 * time.Second})
	until(t, "it is acked", r.isEmpty)
	equal(t, c.stop(), nil)
	equal(t, verdicts.get(), []SettleOutcome{SettleOK})
	equal(t, len(c.lost.get()), 0)
	before, after := r.requests("/extend")[0].receipts(), r.requests("/ack")[0].receipts()
	equal(t, len(before) == 1 && len(after) == 1 && before[0] != after[0], true)
}

func TestAHandlerThatFailsOrPanicsIsANackWithItsReason(t *testing.T) {
	r := made(t, 4, Settings{"retry": map[string]any{"max_attempts": 1}})
	handle := func(_ context.Context, d *Delivery) error {
		switch d.ID {
		case "m-1":
			panic("no such shop")
		case "m-2":
			return errors.New("half \xf0\x9f")
		case "m-3":
			return (*mute)(nil)
		}
		return errors.New("no such order")
	}
	c := r.consume(handle, ConsumeOptions{})
	until(t, "all are dead letters", func() bool { return must(r.beside.Info(ctx)).Dead == 4 })
	equal(t, c.stop(), nil)
	reasons := map[string]string{"m-0": "no such order", "m-1": "no such shop", "m-2": "half \ufffd", "m-3": "panicked"}
	for id, reason := range reasons {
		equal(t, strings.Contains(must(r.beside.Get(ctx, id)).Death.Reason, reason), true)
	}
	equal(t, len(c.errors.get()), 4)
}

// mute is an error that panics where its text is asked for.
type mute struct{ text string }

func (m *mute) Error() string { return m.text }

func TestANackWithADelayIsNotUndoneByABeat(t *testing.T) {
	r := made(t, 1, nil)
	var verdicts list[SettleOutcome]
	delay := time.Hour
	handle := func(ctx context.Context, d *Delivery) error {
		verdicts.add(must(d.Nack(ctx, Nack{Delay: &delay, Reason: "not yet"})))
		time.Sleep(4500 * time.Millisecond)
		return nil
	}
	c := r.consume(handle, ConsumeOptions{Visibility: 9 * time.Second})
	until(t, "it is nacked", func() bool { return len(verdicts.get()) > 0 })
	equal(t, c.stop(), nil)
	equal(t, must(r.beside.Get(ctx, "m-0")).State, "scheduled")
	equal(t, verdicts.get(), []SettleOutcome{SettleOK})
	equal(t, len(r.requests("/extend"))+len(r.requests("/ack"))+len(c.lost.get()), 0)
}

// waitsForItsEnd is a handler that ends with its context.
func waitsForItsEnd(ended *atomic.Bool) Handler {
	return func(ctx context.Context, _ *Delivery) error {
		<-ctx.Done()
		ended.Store(true)
		return ctx.Err()
	}
}

func TestAHandlerOfAMessageThatIsCancelledIsStopped(t *testing.T) {
	r := made(t, 1, nil)
	var ended atomic.Bool
	c := r.consume(waitsForItsEnd(&ended), ConsumeOptions{Visibility: 2400 * time.Millisecond})
	until(t, "it is claimed", func() bool { return must(r.beside.Info(ctx)).InFlight == 1 })
	equal(t, must(r.beside.Cancel(ctx, "m-0")).Outcome, CancelInFlight)
	until(t, "the handler ends", ended.Load)
	equal(t, c.stop(), nil)
	equal(t, c.lost.get(), []SettleOutcome{SettleCancelled})
	equal(t, len(r.requests("/ack"))+len(r.requests("/nack")), 0)
}

func TestAHandlerWhoseClaimRunsOutIsStopped(t *testing.T) {
	r := made(t, 1, Settings{"retry": map[string]any{"initial": "1h", "max": "1h"}})
	var ended atomic.Bool
	r.fault("cut", "/extend", map[string]any{"times": 1000})
	c := r.consume(waitsForItsEnd(&ended), ConsumeOptions{Visibility: 1800 * time.Millisecond})
	until(t, "the handler ends", ended.Load)
	equal(t, c.stop(), nil)
	equal(t, c.lost.get(), []SettleOutcome{SettleExpired})
	equal(t, len(r.requests("/extend")) > 1, true)
	equal(t, len(r.requests("/ack"))+len(r.requests("/nack")), 0)
}

func TestWhatComesAfterItsClaimIsOverIsLostAndNotHandled(t *testing.T) {
	r := made(t, 1, nil)
	var handled list[string]
	handle := func(_ context.Context, d *Delivery) error {
		handled.add(d.ID)
		return nil
	}
	r.fault("delay_answer", "/claim", map[string]any{"seconds": 1.5})
	c := r.consume(handle, ConsumeOptions{Visibility: 1200 * time.Millisecond})
	until(t, "it is acked", r.isEmpty)
	equal(t, c.stop(), nil)
	equal(t, handled.get(), []string{"m-0"})
	equal(t, c.lost.get(), []SettleOutcome{SettleExpired})
	equal(t, len(r.requests("/release")), 1)
}

func TestWhatFallsDueLateInAClaimThatWaitsLongerThanItsVisibilityIsKept(t *testing.T) {
	r := made(t, 0, nil)
	must(r.beside.Enqueue(ctx, NewMessage{ID: "late", Delay: 6 * time.Second}))
	var attempts list[int]
	handle := func(ctx context.Context, d *Delivery) error {
		attempts.add(d.Attempt)
		time.Sleep(500 * time.Millisecond)
		return ctx.Err()
	}
	c := r.consume(handle, ConsumeOptions{Visibility: 4 * time.Second, Wait: 20 * time.Second})
	until(t, "it is acked", func() bool { return len(attempts.get()) > 0 && r.isEmpty() })
	equal(t, c.stop(), nil)
	equal(t, attempts.get(), []int{1})
	equal(t, len(c.lost.get()), 0)
}

func TestAConsumerThatHasANameSaysItInItsClaims(t *testing.T) {
	r := made(t, 2, nil)
	handle := func(context.Context, *Delivery) error {
		time.Sleep(100 * time.Millisecond)
		return nil
	}
	c := r.consume(handle, ConsumeOptions{Concurrency: 1, Consumer: "worker-1"})
	until(t, "both are acked", r.isEmpty)
	equal(t, c.stop(), nil)
	claims := r.requests("/claim")
	must(r.topic.Claim(ctx, 1, 0, 0))
	for at, claim := range r.requests("/claim") {
		equal(t, strings.Contains(claim.Body, `"consumer":"worker-1"`), at < len(claims))
	}
}

func TestAClaimOverSeveralTopicsSaysWhoseMessagesItHasAndWhichTopicsFailed(t *testing.T) {
	r := made(t, 2, nil)
	client := must(New(os.Getenv("DUETIME_DIRECT"), Options{}))
	topics := map[string]int{r.topic.Name: 1, r.topic.Name + "-none": 1000}
	var receipts []string
	var failed []ClaimFailure
	for len(receipts) < 2 || len(failed) == 0 {
		done := receipts
		if len(done) > 1 {
			done = done[len(done)-1:]
		}
		claimed := must(client.ClaimAny(ctx, topics, 1, 100*time.Millisecond, 5*time.Minute, done...))
		equal(t, len(claimed.Results), len(done))
		for _, one := range claimed.Results {
			equal(t, one.Value.Outcome == SettleOK || one.Value.Outcome == SettleAlready, true)
		}
		for _, m := range claimed.Messages {
			equal(t, claimed.Topic, r.topic.Name)
			receipts = append(receipts, m.Receipt)
		}
		failed = append(failed, claimed.Failed...)
	}
	equal(t, failed[0].Code, "unknown_topic")
	equal(t, failed[0].Retryable, false)
	must(client.ClaimAny(ctx, topics, 1, 0, 0, receipts...))
	for _, one := range must(r.topic.Ack(ctx, receipts)) {
		equal(t, one.Value.Outcome, SettleAlready)
	}
}

func TestAClaimThatAsksForNoTimeHidesAMessageForAsLongAsItSays(t *testing.T) {
	r := made(t, 0, nil)
	must(r.beside.Enqueue(ctx, NewMessage{ID: "film", VisibilityTimeout: 2 * time.Hour}))
	equal(t, must(r.beside.Get(ctx, "film")).VisibilityTimeout, "2h")
	claimed := must(r.beside.Claim(ctx, 1, 10*time.Second, 0))
	equal(t, claimed.Messages[0].Deadline.After(time.Now().Add(time.Hour)), true)
	must(r.beside.Extend(ctx, []string{claimed.Messages[0].Receipt}, 0))
	equal(t, must(r.beside.Get(ctx, "film")).VisibleAt.After(time.Now().Add(time.Hour)), true)
}

func TestAnAckThatComesAfterACancelSaysSo(t *testing.T) {
	r := made(t, 1, nil)
	handle := func(_ context.Context, d *Delivery) error {
		must(r.beside.Cancel(ctx, d.ID))
		return nil
	}
	c := r.consume(handle, ConsumeOptions{})
	until(t, "the cancel is seen", func() bool { return len(c.lost.get()) > 0 })
	equal(t, c.stop(), nil)
	equal(t, c.lost.get(), []SettleOutcome{SettleCancelled})
}

func TestWhatEndsWhileNoSlotIsFreeIsAckedWithTheNextClaim(t *testing.T) {
	r := made(t, 5, nil)
	handle := func(context.Context, *Delivery) error {
		// The next claim waits for a slot by then.
		time.Sleep(200 * time.Millisecond)
		return nil
	}
	c := r.consume(handle, ConsumeOptions{Concurrency: 1})
	until(t, "all are acked", r.isEmpty)
	equal(t, c.stop(), nil)
	acked, alone := r.receipts("/claim"), r.receipts("/ack")
	equal(t, []int{len(acked) + len(alone), distinct(append(alone, acked...)), len(c.lost.get())}, []int{5, 5, 0})
	equal(t, len(acked) >= 3, true)
}

func TestAnAckDoesNotWaitBehindAClaimThatWaits(t *testing.T) {
	r := made(t, 1, nil)
	handle := func(context.Context, *Delivery) error {
		until(t, "the next claim waits", func() bool { return len(r.requests("/claim")) == 2 })
		return nil
	}
	c := r.consume(handle, ConsumeOptions{Concurrency: 2, Wait: 8 * time.Second})
	until(t, "it is acked", r.isEmpty)
	equal(t, []int{len(r.requests("/claim")), len(r.receipts("/ack"))}, []int{2, 1})
	equal(t, c.stop(), nil)
}

func TestAnAckWhoseClaimHasNoAnswerIsSentByItself(t *testing.T) {
	r := made(t, 2, nil)
	faults := []string{"cut", "cut_answer"}
	handle := func(context.Context, *Delivery) error {
		r.fault(faults[0], "/claim", nil)
		faults = faults[1:]
		time.Sleep(200 * time.Millisecond)
		return nil
	}
	c := r.consume(handle, ConsumeOptions{Concurrency: 1})
	until(t, "both are acked", r.isEmpty)
	equal(t, c.stop(), nil)
	withClaim := r.receipts("/claim")
	equal(t, len(withClaim), 2)
	equal(t, r.receipts("/ack"), withClaim)
	equal(t, len(c.lost.get()), 0)
}

func TestAnAckThatHangsAloneOrWithAClaimIsSentAgainInTime(t *testing.T) {
	for path, concurrency := range map[string]int{"/claim": 1, "/ack": 2} {
		r := made(t, 1, nil)
		var begun list[time.Time]
		handle := func(context.Context, *Delivery) error {
			begun.add(time.Now())
			r.fault("delay", path, map[string]any{"seconds": 20})
			time.Sleep(200 * time.Millisecond)
			return nil
		}
		c := r.consume(handle, ConsumeOptions{
			Concurrency: concurrency, Visibility: 6 * time.Second, Wait: 200 * time.Millisecond,
		})
		until(t, "it is acked", r.isEmpty)
		equal(t, time.Since(begun.get()[0]) < 6*time.Second, true)
		equal(t, c.stop(), nil)
		equal(t, len(begun.get()), 1)
		equal(t, len(c.lost.get()), 0)
	}
}

func TestACancelIsSeenAtOnceByAnAckThatGoesWithAClaimThatWouldWait(t *testing.T) {
	r := made(t, 1, nil)
	handle := func(_ context.Context, d *Delivery) error {
		time.Sleep(200 * time.Millisecond)
		must(r.beside.Cancel(ctx, d.ID))
		return nil
	}
	c := r.consume(handle, ConsumeOptions{Concurrency: 1, Wait: 50 * time.Second})
	until(t, "the cancel is seen", func() bool { return len(c.lost.get()) > 0 })
	c.cancel()
	// What ends the claim that waits by now.
	must(r.beside.Enqueue(ctx, NewMessage{ID: "late"}))
	equal(t, <-c.ended, nil)
	equal(t, c.lost.get(), []SettleOutcome{SettleCancelled})
	equal(t, len(r.receipts("/ack")), 0)
	// Where such a claim is lost, the ack is sent by itself before the visibility ends: 30 s.
	for _, claim := range r.requests("/claim") {
		equal(t, strings.Contains(claim.Body, `"wait":"5000ms"`), len(claim.receipts()) > 0)
	}
}

func TestAStopLetsHandlersEndAndReleasesWhatIsClaimedAfterIt(t *testing.T) {
	r := made(t, 1, Settings{"shards": 1})
	var begun, ended atomic.Bool
	handle := func(ctx context.Context, _ *Delivery) error {
		begun.Store(true)
		time.Sleep(500 * time.Millisecond)
		ended.Store(true)
		return ctx.Err()
	}
	c := r.consume(handle, ConsumeOptions{Concurrency: 2, Wait: 3 * time.Second})
	until(t, "the handler begins", begun.Load)
	until(t, "the next claim waits", func() bool { return len(r.requests("/claim")) == 2 })
	c.cancel()
	must(r.beside.Enqueue(ctx, NewMessage{ID: "late"}))
	equal(t, <-c.ended, nil)
	late := must(r.beside.Get(ctx, "late"))
	equal(t, ended.Load() && must(r.beside.Get(ctx, "m-0")) == nil, true)
	equal(t, []any{late.State, late.Attempts}, []any{"scheduled", 0})
	equal(t, len(r.requests("/release")), 1)
}

func TestWhatIsNotDoneInTheTimeForAStopIsReleasedAndKeepsItsAttempt(t *testing.T) {
	r := made(t, 1, nil)
	var ended atomic.Bool
	short := 200 * time.Millisecond
	c := r.consume(waitsForItsEnd(&ended), ConsumeOptions{Grace: short, Wait: short})
	until(t, "it is claimed", func() bool { return must(r.beside.Info(ctx)).InFlight == 1 })
	equal(t, c.stop(), nil)
	m := must(r.beside.Get(ctx, "m-0"))
	equal(t, []any{m.State, m.Attempts}, []any{"scheduled", 0})
}

func TestAConsumerGoesOnWhenItsNodeIsBusyOrRestarts(t *testing.T) {
	r := made(t, 50, nil)
	r.fault("answer", "/claim", busy)
	var handled list[string]
	handle := func(_ context.Context, d *Delivery) error {
		time.Sleep(10 * time.Millisecond)
		handled.add(d.ID)
		return nil
	}
	c := r.consume(handle, ConsumeOptions{Visibility: 2 * time.Second})
	until(t, "some are handled", func() bool { return len(handled.get()) > 5 })
	r.nodeDoes("restart")
	for n := 0; n < 20; n++ {
		must(r.topic.Enqueue(ctx, NewMessage{ID: fmt.Sprintf("later-%d", n)}))
	}
	until(t, "all are handled", func() bool { return distinct(handled.get()) == 70 && r.isEmpty() })
	equal(t, c.stop(), nil)
}

func distinct(all []string) int {
	found := map[string]bool{}
	for _, each := range all {
		found[each] = true
	}
	return len(found)
}

func TestNothingIsLostOrHandledTwiceWhileTheShardCountChanges(t *testing.T) {
	r := made(t, 0, nil)
	var handled list[string]
	handle := func(_ context.Context, d *Delivery) error {
		handled.add(d.ID)
		return nil
	}
	c := r.consume(handle, ConsumeOptions{Concurrency: 20})
	for n := 0; n < 150; n++ {
		if n == 50 {
			must(r.beside.Create(ctx, Settings{"shards": 5}))
		}
		m := NewMessage{ID: fmt.Sprintf("m-%d", n), Delay: 300 * time.Millisecond}
		equal(t, must(r.topic.Enqueue(ctx, m)).Outcome, EnqueueScheduled)
	}
	until(t, "all are handled", func() bool { return distinct(handled.get()) == 150 && r.isEmpty() })
	equal(t, c.stop(), nil)
	equal(t, len(handled.get()), 150)
	equal(t, must(r.beside.Info(ctx)).ShardCount, 5)
}

func TestAnErrorThatNoPauseCuresEndsTheConsumer(t *testing.T) {
	r := newRig(t, Options{})
	c := r.consume(func(context.Context, *Delivery) error { return nil }, ConsumeOptions{})
	equal(t, isCode(<-c.ended, "unknown_topic"), true)
}

func TestAMessageDeliveredAtMostOnceHasNothingToSettle(t *testing.T) {
	r := made(t, 3, Settings{"delivery": "at-most-once"})
	var verdicts list[SettleOutcome]
	handle := func(ctx context.Context, d *Delivery) error {
		verdicts.add(must(d.Ack(ctx)))
		return nil
	}
	c := r.consume(handle, ConsumeOptions{})
	until(t, "all are handled", func() bool { return len(verdicts.get()) == 3 })
	equal(t, c.stop(), nil)
	equal(t, verdicts.get(), []SettleOutcome{SettleOK, SettleOK, SettleOK})
	equal(t, len(r.requests("/ack")), 0)
}
