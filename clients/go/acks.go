package duetime

// pendingAck is an ack that goes with the next claim.
type pendingAck struct {
	receipt string
	// Takes the outcome; "": it is to be acked by itself.
	outcome chan SettleOutcome
}

// nextAcks are the acks that go with the next claim of a consumer, whose mutex guards them.
type nextAcks struct {
	waiting []pendingAck
	// How many were handed over and have no outcome yet. Their handlers have ended, so their slots are free.
	count int
	// True while the next claim waits for nothing but a free slot: an ack that is handed over frees one.
	isReady bool
}

// add hands an ack over and returns where its outcome comes; nil if no claim is sent at once.
func (a *nextAcks) add(receipt string) chan SettleOutcome {
	if !a.isReady {
		return nil
	}
	ack := pendingAck{receipt, make(chan SettleOutcome, 1)}
	a.waiting = append(a.waiting, ack)
	a.count++
	return ack.outcome
}

// take takes those that go with the claim that is sent at once. No more are added until the next one waits.
func (a *nextAcks) take() []pendingAck {
	taken := a.waiting
	a.waiting, a.isReady = nil, false
	return taken
}

// answer hands out what became of acks; what has no outcome is to be acked by itself.
func (a *nextAcks) answer(acks []pendingAck, results []Result[Settled]) {
	a.count -= len(acks)
	for at, ack := range acks {
		var outcome SettleOutcome
		if at < len(results) && results[at].Err == nil {
			outcome = results[at].Value.Outcome
		}
		ack.outcome <- outcome
	}
}
