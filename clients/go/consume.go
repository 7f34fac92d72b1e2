package duetime

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"
)

const (
	// Most messages that one consumer handles at a time, and most that one claim may bring.
	concurrencyMax = 1000
	claimMax       = 256
	// Beats begin after this share of the visibility; what is to be done is looked at in so many steps of it.
	beatShare = 3
	steps     = 12
	// A claim waits for this share of the visibility at most, which counts from before it was sent: what it brings can be
	// extended in time. One with acks waits for the smaller share, and the answers to it, to settlements and to extensions
	// are waited for as long: what is lost is sent again in time.
	waitShare    = 3
	ackWaitShare = 6
	// How long the release of what is held is tried at a stop, and how long a cancelled handler may take to end.
	releaseFor = 5 * time.Second
	cancelMax  = 5 * time.Second
)

// Handler handles one message. Its context ends when the message is not this consumer's any more, or the time to end at
// a stop is over. The message is acked when it returns nil and nacked when it returns an error, unless it settled it.
type Handler func(ctx context.Context, d *Delivery) error

// ConsumeOptions of a consumer. The zero value has the defaults.
type ConsumeOptions struct {
	// Concurrency is how many messages are handled at a time, and so the most that are claimed; 10 if zero.
	Concurrency int
	// Visibility is how long a claim lasts. Each is extended by every third of this; 30 s if zero.
	Visibility time.Duration
	// Wait is how long one claim waits for something due, and so how long a stop may take; 5 s if zero, a third of
	// Visibility at most.
	Wait time.Duration
	// Grace is how long handlers may take to end at the stop, before their context ends; 30 s if zero.
	Grace time.Duration
	// Consumer is the name of whoever claims, in the list of consumers that a node answers, in 100 bytes; none if empty.
	Consumer string
	// OnLost is called once for a message that is not the handler's any more (SettleCancelled: undo what was done).
	OnLost func(*Delivery, SettleOutcome)
	// OnError is called for each error of a handler, and for what could not be claimed, extended or settled, then with
	// a delivery if it is about one. Both are logged if nil.
	OnError func(error, *Delivery)
}

// Delivery is a message that a handler holds. It settles itself: each extension ends the Receipt that was claimed.
type Delivery struct {
	ClaimedMessage
	loop   *consumer
	ctx    context.Context
	cancel context.CancelFunc
	// Held while the claim is extended or settled: a receipt ends with each extension.
	settling sync.Mutex
	// Guards what follows.
	mu        sync.Mutex
	receipt   string
	heldUntil time.Time
	beatAt    time.Time
	lost      SettleOutcome
	settled   SettleOutcome
}

// Ack says that the message is done. SettleCancelled: it was cancelled meanwhile, undo what was done.
func (d *Delivery) Ack(ctx context.Context) (SettleOutcome, error) {
	return d.settle(ctx, request{path: "/ack"}, nil, false)
}

// Nack says that it is not: it comes again, or, with Dead, is a dead letter at once.
func (d *Delivery) Nack(ctx context.Context, n Nack) (SettleOutcome, error) {
	return d.settle(ctx, request{path: "/nack"}, nackFields(n), false)
}

// Release says that it was not begun: it is due again at once, and the claim costs no attempt.
func (d *Delivery) Release(ctx context.Context) (SettleOutcome, error) {
	return d.settle(ctx, request{path: "/release"}, nil, false)
}

func (d *Delivery) settle(
	ctx context.Context, r request, more map[string]any, withClaim bool,
) (SettleOutcome, error) {
	d.settling.Lock()
	defer d.settling.Unlock()
	d.mu.Lock()
	receipt, settled := d.receipt, d.settled
	d.mu.Unlock()
	if settled != "" {
		return settled, fmt.Errorf("duetime: message %q is settled already (%s)", d.ID, settled)
	}
	outcome := SettleOK
	if d.isBound() {
		outcome = ""
		if withClaim {
			outcome = d.loop.ackWithClaim(receipt)
		}
		if outcome == "" {
			r.timeout = d.loop.o.Visibility / ackWaitShare
			result, err := one(d.loop.topic.settle(ctx, r, []string{receipt}, more))
			if err != nil {
				return "", err
			}
			outcome = result.Outcome
		}
	}
	d.mu.Lock()
	d.settled = outcome
	d.mu.Unlock()
	if outcome != SettleOK && outcome != SettleAlready {
		d.loop.lose(d, outcome)
	}
	return outcome, nil
}

// isBound is false for an at-most-once message, of which nothing is extended or settled.
func (d *Delivery) isBound() bool { return !d.Deadline.IsZero() }

func (d *Delivery) isOpen() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.isBound() && d.lost == "" && d.settled == ""
}

func (d *Delivery) hasRunOut() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !time.Now().Before(d.heldUntil)
}

func (d *Delivery) renew(receipt string, since time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.receipt = receipt
	d.heldUntil, d.beatAt = since.Add(d.loop.o.Visibility), since.Add(d.loop.o.Visibility/beatShare)
}

type consumer struct {
	topic   *Topic
	handler Handler
	o       ConsumeOptions
	// Says that something below has changed, which mu guards.
	changed chan struct{}
	mu      sync.Mutex
	held    map[*Delivery]bool
	acks    nextAcks
}

// Consume handles what falls due until ctx ends: then no more is claimed, handlers have Grace to end, and the rest is
// released. It returns nil then, and an error that no pause cures.
func (t *Topic) Consume(ctx context.Context, handler Handler, o ConsumeOptions) error {
	c, err := newConsumer(t, handler, o)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	var beats sync.WaitGroup
	beats.Add(1)
	go func() {
		defer beats.Done()
		c.beat(ended)
	}()
	err = c.claimUntil(ctx)
	c.acked(c.takeAcks(), nil)
	c.drain()
	close(ended)
	beats.Wait()
	return err
}

func newConsumer(t *Topic, handler Handler, o ConsumeOptions) (*consumer, error) {
	if o.Concurrency == 0 {
		o.Concurrency = 10
	}
	if o.Concurrency < 0 || o.Concurrency > concurrencyMax {
		return nil, fmt.Errorf("duetime: Concurrency is %d; give 1 to %d", o.Concurrency, concurrencyMax)
	}
	for _, each := range []struct {
		value    *time.Duration
		default_ time.Duration
	}{{&o.Visibility, 30 * time.Second}, {&o.Wait, 5 * time.Second}, {&o.Grace, 30 * time.Second}} {
		if *each.value == 0 {
			*each.value = each.default_
		}
	}
	if o.Visibility < 100*time.Millisecond {
		return nil, fmt.Errorf("duetime: Visibility is %v; give 100 ms or more", o.Visibility)
	}
	changed := make(chan struct{}, 1)
	return &consumer{topic: t, handler: handler, o: o, changed: changed, held: map[*Delivery]bool{}}, nil
}

// signal says that something has changed.
func (c *consumer) signal() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// freeSlots waits for free slots and returns how many there are; none when ctx ends.
func (c *consumer) freeSlots(ctx context.Context) int {
	for ctx.Err() == nil {
		c.mu.Lock()
		free := c.o.Concurrency - len(c.held) + c.acks.count
		c.acks.isReady = c.acks.isReady || free <= 0
		c.mu.Unlock()
		if free > claimMax {
			free = claimMax
		}
		if free > 0 {
			return free
		}
		select {
		case <-ctx.Done():
		case <-c.changed:
		}
	}
	return 0
}

// ackWithClaim acks with the next claim, if that is sent at once; "": it is to be acked by itself.
func (c *consumer) ackWithClaim(receipt string) SettleOutcome {
	c.mu.Lock()
	outcome := c.acks.add(receipt)
	c.mu.Unlock()
	if outcome == nil {
		return ""
	}
	c.signal()
	return <-outcome
}

func (c *consumer) takeAcks() []pendingAck {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acks.take()
}

func (c *consumer) acked(acks []pendingAck, results []Result[Settled]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acks.answer(acks, results)
}

// claim claims, and acks what ended while no slot was free.
func (c *consumer) claim(ctx context.Context, count int) ([]ClaimedMessage, error) {
	acks := c.takeAcks()
	var receipts []string
	for _, ack := range acks {
		receipts = append(receipts, ack.receipt)
	}
	wait, most, r := c.o.Wait, c.o.Visibility/waitShare, request{retryFor: -1}
	if len(acks) > 0 {
		most = c.o.Visibility / ackWaitShare
		r.timeout = most
	}
	if wait > most {
		wait = most
	}
	claimed, err := c.topic.claim(ctx, r, c.o.Consumer, count, wait, c.o.Visibility, receipts)
	c.acked(acks, claimed.Results)
	if err == nil && claimed.Err != nil {
		err = claimed.Err
	}
	return claimed.Messages, err
}

func (c *consumer) claimUntil(ctx context.Context) error {
	for failures := 0; ctx.Err() == nil; {
		free := c.freeSlots(ctx)
		if free == 0 {
			return nil
		}
		since := time.Now()
		// A claim is not cut off at the stop: what was sent for it would be hidden until its visibility ends.
		claimed, err := c.claim(detached{ctx}, free)
		if err != nil {
			if !isWaitedOut(err) {
				return err
			}
			c.report(err, nil)
			sleep(ctx, pauseAfter(failures, err))
			failures++
			continue
		}
		failures = 0
		for _, m := range claimed {
			c.begin(ctx, m, since)
		}
	}
	return nil
}

func (c *consumer) begin(ctx context.Context, m ClaimedMessage, since time.Time) {
	d := &Delivery{ClaimedMessage: m, loop: c}
	d.ctx, d.cancel = context.WithCancel(detached{ctx})
	d.renew(m.Receipt, since)
	if ctx.Err() != nil && d.isBound() {
		c.release(d)
		return
	}
	c.mu.Lock()
	c.held[d] = true
	c.mu.Unlock()
	go func() {
		c.handle(d)
		d.cancel()
		c.mu.Lock()
		delete(c.held, d)
		c.mu.Unlock()
		c.signal()
	}()
}

func (c *consumer) handle(d *Delivery) {
	if d.isBound() && d.hasRunOut() {
		// The answer of its claim came too late: the message may be another's.
		c.lose(d, SettleExpired)
		c.release(d)
		return
	}
	err := c.call(d)
	isCancelled := d.ctx.Err() != nil
	if err != nil && !isCancelled {
		c.report(err, d)
	}
	if !d.isOpen() || err != nil && isCancelled {
		return
	}
	// The message is settled also if its context ends at this moment.
	ctx := detached{d.ctx}
	if err == nil {
		_, err = d.settle(ctx, request{path: "/ack"}, nil, true)
	} else {
		_, err = d.Nack(ctx, Nack{Reason: err.Error()})
	}
	if err != nil {
		c.report(err, d)
	}
}

// call calls the handler; a panic of it, or of its error when asked for its text, is an error, as in net/http.
func (c *consumer) call(d *Delivery) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("handler panicked: %v", p)
		}
	}()
	if err = c.handler(c.topic.transport.inTraceOf(d.ctx, d.ClaimedMessage), d); err != nil {
		_ = err.Error()
	}
	return err
}

func (c *consumer) lose(d *Delivery, outcome SettleOutcome) {
	d.mu.Lock()
	isKnown := d.lost != ""
	if !isKnown {
		d.lost = outcome
	}
	d.mu.Unlock()
	if isKnown {
		return
	}
	d.cancel()
	if c.o.OnLost == nil {
		log.Printf("duetime: message %q is not held any more: %s", d.ID, outcome)
		return
	}
	c.o.OnLost(d, outcome)
}

func (c *consumer) all() []*Delivery {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*Delivery
	for d := range c.held {
		all = append(all, d)
	}
	return all
}

func (c *consumer) beat(ended chan struct{}) {
	ticker := time.NewTicker(c.o.Visibility / steps)
	defer ticker.Stop()
	// One extension at a time; what runs out is looked for beside it.
	extended := make(chan struct{}, 1)
	extended <- struct{}{}
	for {
		select {
		case <-ended:
			<-extended
			return
		case <-ticker.C:
		}
		c.loseWhatRanOut()
		select {
		case <-extended:
			go func() {
				c.extend()
				extended <- struct{}{}
			}()
		default:
		}
	}
}

func (c *consumer) loseWhatRanOut() {
	for _, d := range c.all() {
		// What is being settled is left alone, and so is what is being extended: that call ends soon.
		if d.hasRunOut() && d.isOpen() && d.settling.TryLock() {
			d.settling.Unlock()
			c.lose(d, SettleExpired)
		}
	}
}

// extend extends the claims that are a third over, in one request. What is being settled is left alone: its receipt
// ends.
func (c *consumer) extend() {
	since := time.Now()
	var due []*Delivery
	var receipts []string
	for _, d := range c.all() {
		if !d.isOpen() || !d.settling.TryLock() {
			continue
		}
		d.mu.Lock()
		isDue, receipt := d.settled == "" && !d.beatAt.After(since), d.receipt
		d.mu.Unlock()
		if !isDue {
			d.settling.Unlock()
			continue
		}
		due, receipts = append(due, d), append(receipts, receipt)
	}
	if len(due) == 0 {
		return
	}
	r := request{path: "/extend", timeout: c.o.Visibility / ackWaitShare, retryFor: -1}
	more := map[string]any{"visibility_timeout": millis(c.o.Visibility)}
	results, err := c.topic.settle(context.Background(), r, receipts, more)
	if err != nil {
		c.report(fmt.Errorf("claims could not be extended: %w", err), nil)
	}
	for at, d := range due {
		var settled Settled
		if err == nil && results[at].Err == nil {
			settled = results[at].Value
		}
		if settled.Receipt != "" {
			d.renew(settled.Receipt, since)
		} else {
			d.mu.Lock()
			d.beatAt = time.Now().Add(c.o.Visibility / steps)
			d.mu.Unlock()
		}
		d.settling.Unlock()
		if settled.Receipt == "" && settled.Outcome != "" {
			c.lose(d, settled.Outcome)
		}
	}
}

// drain waits for what is held, then ends the handlers' contexts, and releases what is still held after that.
func (c *consumer) drain() {
	if c.isIdleWithin(c.o.Grace) {
		return
	}
	rest := c.all()
	for _, d := range rest {
		d.cancel()
	}
	c.isIdleWithin(cancelMax)
	for _, d := range rest {
		if d.isOpen() {
			c.release(d)
		}
	}
}

// isIdleWithin waits until nothing is held, but not longer.
func (c *consumer) isIdleWithin(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for len(c.all()) > 0 {
		select {
		case <-c.changed:
		case <-timer.C:
			return false
		}
	}
	return true
}

func (c *consumer) release(d *Delivery) {
	_, err := d.settle(context.Background(), request{path: "/release", retryFor: releaseFor}, nil, false)
	if err != nil {
		c.report(fmt.Errorf("not released, it comes after its visibility: %w", err), d)
	}
}

func (c *consumer) report(err error, d *Delivery) {
	if c.o.OnError != nil {
		c.o.OnError(err, d)
		return
	}
	if d != nil {
		err = fmt.Errorf("message %q: %w", d.ID, err)
	}
	log.Printf("duetime: %v", err)
}
