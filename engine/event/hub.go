package event

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Errors of a subscription.
var (
	// ErrHubClosed: the hub was closed; another replica may serve the rest.
	ErrHubClosed = errors.New("event hub: closed")
	// ErrIntegrity: the log has a lasting gap or holds a damaged chunk. Raise an alarm.
	ErrIntegrity = errors.New("event hub: log integrity")
)

// HubOptions configure a Hub. Log is required; zero fields mean the defaults.
type HubOptions struct {
	Log        Log
	RingEvents int           // newest events kept of a watched run: 2,048
	RingBytes  int64         // newest encoded bytes kept of a watched run: 1 MiB
	TotalBytes int64         // encoded bytes kept of all watched runs: 256 MiB
	PageBytes  int64         // encoded bytes kept of what was read from the log, for others who replay it: 64 MiB
	Poll       time.Duration // how often a watched run's tail is read, whatever hints came: 2 s
	Reread     time.Duration // first pause before a gap is read again, doubled 8 times: 10 ms
	Logger     *slog.Logger
}

// Hub lets any number of readers follow runs. A reader holds a cursor and no queue: hints wake it, and it reads from
// a shared tail in memory or from the log. Hints may be lost, late or out of order; each watched run is also polled.
// However many readers and runs there are, it has one goroutine, beside those of the reads in progress.
type Hub struct {
	o     HubOptions
	life  context.Context
	close context.CancelFunc
	wg    sync.WaitGroup
	nudge chan struct{} // the poller looks again
	pages pages

	mu      sync.Mutex
	closed  bool
	polling bool // the poller runs
	topics  map[string]*topic
	due     *list.List // of *topic, by the time of their next poll
	hinted  []*topic   // to be polled at once
	bytes   int64      // in all rings
}

// NewHub makes a hub. Close ends its goroutines; without watched runs it has none.
func NewHub(o HubOptions) *Hub {
	o.RingEvents = cmp.Or(max(o.RingEvents, 0), 2048)
	o.RingBytes = cmp.Or(max(o.RingBytes, 0), 1<<20)
	o.TotalBytes = cmp.Or(max(o.TotalBytes, 0), 256<<20)
	o.PageBytes = cmp.Or(max(o.PageBytes, 0), 64<<20)
	o.Poll = cmp.Or(max(o.Poll, 0), 2*time.Second)
	o.Reread = cmp.Or(max(o.Reread, 0), 10*time.Millisecond)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	life, cancel := context.WithCancelCause(context.Background())
	return &Hub{
		o: o, life: life, close: func() { cancel(ErrHubClosed) }, nudge: make(chan struct{}, 1),
		pages: newPages(o.PageBytes), topics: map[string]*topic{}, due: list.New(),
	}
}

// Close ends every subscription with ErrHubClosed and waits for the hub's goroutines.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true // nothing begins after this
	h.close()
	for _, t := range h.topics {
		h.forget(t)
		h.wake(t.end())
	}
	h.mu.Unlock()
	h.wg.Wait()
}

// Publish hands over a chunk that is durable. It never blocks and keeps nothing of a run that nobody watches.
func (h *Hub) Publish(c Chunk) {
	h.mu.Lock()
	t := h.topics[c.RunID]
	if t == nil {
		h.mu.Unlock()
		return
	}
	woken := h.take(t, c)
	few := len(woken.subs) <= wakeInline
	if !few {
		h.wake(woken)
	}
	h.mu.Unlock()
	if few { // sooner than a goroutine would
		woken.call()
	}
}

// wakeInline is how many readers are woken by the publisher itself.
const wakeInline = 8

// take puts the chunk into the topic's ring. For holders of the lock.
func (h *Hub) take(t *topic, c Chunk) wakening {
	grown, woken := t.publish(c, h.o, h.o.TotalBytes-h.bytes)
	h.bytes += grown
	return woken
}

// wake calls the readers from a goroutine. For holders of the lock.
func (h *Hub) wake(w wakening) {
	if len(w.subs) > 0 {
		h.wg.Go(w.call)
	}
}

// Wake hints that the run's log may have grown, for instance by another replica.
func (h *Hub) Wake(runID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.topics[runID]; t != nil {
		h.pollSoon(t)
	}
}

// WakeAll hints for every watched run: whoever reopens a change stream has missed hints.
func (h *Hub) WakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.topics {
		h.pollSoon(t)
	}
}

// Watched is the number of runs that are watched: they are polled, and have a ring.
func (h *Hub) Watched() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.topics)
}

// Subscribe makes a reader of a run's events with sequence > after; 0 is everything. It holds nothing until it is
// polled; see Subscription.Close.
func (h *Hub) Subscribe(runID string, after int64) *Subscription {
	return &Subscription{hub: h, runID: runID, cursor: max(after, 0)}
}

// enter finds the topic of a run, which begins to be watched with its first reader.
func (h *Hub) enter(runID string) (*topic, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrHubClosed
	}
	t := h.topics[runID]
	if t == nil {
		t = newTopic(runID)
		h.topics[runID] = t
		t.next = time.Now().Add(h.o.Poll)
		t.place = h.due.PushBack(t)
		if !h.polling {
			h.polling = true
			h.wg.Go(h.poll)
		}
	}
	return t, nil
}

// forget takes the topic out. For holders of the lock; the caller wakes who waits for it.
func (h *Hub) forget(t *topic) {
	delete(h.topics, t.runID)
	h.due.Remove(t.place)
	h.bytes -= t.drop()
	h.pages.drop(t.runID)
}

// learn asks the log for its end, unless somebody has told meanwhile.
func (h *Hub) learn(ctx context.Context, t *topic) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case t.asking <- struct{}{}: // one asks for all
		defer func() { <-t.asking }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if _, _, known := t.state(); known {
		return nil
	}
	if err := h.refresh(ctx, t); err != nil {
		return fmt.Errorf("failed to read tail of %s: %w", t.runID, err)
	}
	return nil
}

// refresh learns the run's end from the log. The chunk that it reads for that goes into the ring, for readers on a
// replica that does not write the run.
func (h *Hub) refresh(ctx context.Context, t *topic) error {
	tail, err := h.o.Log.Tail(ctx, t.runID)
	var gone *ExpiredError
	var ended *GivenUpError
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case errors.Is(err, ErrEmpty):
		h.wake(t.advance(0, false))
	case errors.As(err, &gone): // of an ended run: nothing is left to read, from memory neither
		h.bytes -= t.drop()
		h.pages.drop(t.runID)
		h.wake(t.advance(gone.Through, true))
	case errors.As(err, &ended):
		h.wake(t.advance(ended.Through, true))
	case err != nil:
		return err
	case h.topics[t.runID] == t && t.behind(tail.Last) && tail.Verify() == nil:
		h.wake(h.take(t, tail))
	default: // a reader will find what is wrong with it
		h.wake(t.advance(tail.Last, tail.Terminal))
	}
	return nil
}
