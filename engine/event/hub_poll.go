package event

import (
	"context"
	"time"
)

const (
	// idlePolls is after how many polls without a reader a run is no longer watched. A reader that has been woken and has
	// not come yet is not counted as one, so the ring outlives such pauses.
	idlePolls = 3
	// pollsAtOnce bounds the reads that the poller has in progress.
	pollsAtOnce = 8
	// pollTimeout bounds one of them, so that none keeps the others out for ever.
	pollTimeout = 10 * time.Second
)

// pollSoon asks for a poll at once. For holders of the lock.
func (h *Hub) pollSoon(t *topic) {
	if t.hinted || h.closed {
		return
	}
	t.hinted = true
	h.hinted = append(h.hinted, t)
	select {
	case h.nudge <- struct{}{}:
	default: // it is on its way
	}
}

// poll reads the tails of all watched runs again and again, for every hint may be lost. It ends with the last of them.
func (h *Hub) poll() {
	slots := make(chan struct{}, pollsAtOnce)
	timer := time.NewTimer(h.o.Poll)
	defer timer.Stop()
	for {
		t, wait, more := h.nextPoll(time.Now())
		if !more {
			return
		}
		if t == nil {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-h.nudge:
			case <-h.life.Done():
			}
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-h.life.Done():
			continue
		}
		h.wg.Go(func() {
			defer func() { <-slots }()
			h.pollOne(t)
		})
	}
}

func (h *Hub) pollOne(t *topic) {
	ctx, cancel := context.WithTimeout(h.life, pollTimeout)
	defer cancel()
	if err := h.refresh(ctx, t); err != nil && h.life.Err() == nil {
		h.o.Logger.Warn("poll of a watched run failed", "run", t.runID, "error", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t.polled = false
	if t.again {
		t.again = false
		h.pollSoon(t)
	}
}

// nextPoll is the topic to poll now, else how long to wait for one; more is false when the poller has to end. It gives up
// topics that were idle for long.
func (h *Hub) nextPoll(now time.Time) (t *topic, wait time.Duration, more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		if h.closed || len(h.topics) == 0 {
			h.polling = false
			return nil, 0, false
		}
		hinted := len(h.hinted) > 0
		if hinted {
			t = h.hinted[0]
			h.hinted[0] = nil
			h.hinted = h.hinted[1:]
			t.hinted = false
			if h.topics[t.runID] != t {
				continue
			}
		} else {
			t = h.due.Front().Value.(*topic) //nolint:forcetypeassert // the list holds nothing else
			if wait = t.next.Sub(now); wait > 0 {
				return nil, wait, true
			}
			t.next = now.Add(h.o.Poll)
			h.due.MoveToBack(t.place)
			if t.retire() {
				h.forget(t)
				continue
			}
		}
		// An ended run is read, too: while it is watched, its log may expire.
		switch {
		case t.polled:
			t.again = t.again || hinted // what is being read may be older than the hint
		default:
			t.polled = true
			return t, 0, true
		}
	}
}
