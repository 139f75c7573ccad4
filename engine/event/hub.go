package event

import (
	"cmp"
	"context"
	"errors"
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
	Poll       time.Duration // how often a watched run's tail is read, whatever hints came: 2 s
	Reread     time.Duration // first pause before a gap is read again, doubled 8 times: 10 ms
	Logger     *slog.Logger
}

// Hub lets any number of readers follow runs. A reader holds a cursor and no queue: hints wake it, and it reads from
// a shared tail in memory or from the log. Hints may be lost, late or out of order; each watched run is also polled.
type Hub struct {
	o     HubOptions
	life  context.Context
	close context.CancelFunc
	wg    sync.WaitGroup // pollers

	mu     sync.Mutex
	topics map[string]*topic
	bytes  int64 // in all rings
}

// NewHub makes a hub. Close ends its goroutines, one a watched run.
func NewHub(o HubOptions) *Hub {
	o.RingEvents = cmp.Or(max(o.RingEvents, 0), 2048)
	o.RingBytes = cmp.Or(max(o.RingBytes, 0), 1<<20)
	o.TotalBytes = cmp.Or(max(o.TotalBytes, 0), 256<<20)
	o.Poll = cmp.Or(max(o.Poll, 0), 2*time.Second)
	o.Reread = cmp.Or(max(o.Reread, 0), 10*time.Millisecond)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	life, cancel := context.WithCancelCause(context.Background())
	return &Hub{o: o, life: life, close: func() { cancel(ErrHubClosed) }, topics: map[string]*topic{}}
}

// Close ends every subscription with ErrHubClosed and waits for the hub's goroutines.
func (h *Hub) Close() {
	h.mu.Lock() // no topic begins after this
	h.close()
	h.mu.Unlock()
	h.wg.Wait()
}

// Publish hands over a chunk that is durable. It never blocks and keeps nothing of a run that nobody watches.
func (h *Hub) Publish(c Chunk) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.topics[c.RunID]; t != nil {
		h.bytes += t.publish(c, h.o, h.o.TotalBytes-h.bytes)
	}
}

// Wake hints that the run's log may have grown, for instance by another replica.
func (h *Hub) Wake(runID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.topics[runID]; t != nil {
		t.pollNow()
	}
}

// WakeAll hints for every watched run: whoever reopens a change stream has missed hints.
func (h *Hub) WakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.topics {
		t.pollNow()
	}
}

// Watched is the number of runs that have a ring and a poller.
func (h *Hub) Watched() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.topics)
}

// Subscribe makes a reader of a run's events with sequence > after; 0 is everything. It holds nothing until Next is
// called, so it needs no closing.
func (h *Hub) Subscribe(runID string, after int64) *Subscription {
	return &Subscription{hub: h, runID: runID, cursor: max(after, 0)}
}

// enter registers a reader of the run, which begins to be watched with the first.
func (h *Hub) enter(runID string) (*topic, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.life.Err() != nil {
		return nil, ErrHubClosed
	}
	t := h.topics[runID]
	if t == nil {
		t = newTopic(runID)
		h.topics[runID] = t
		h.wg.Go(func() { h.poll(t) })
	}
	t.readers++
	t.idle = 0
	return t, nil
}

func (h *Hub) leave(t *topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.readers--
}

// idlePolls is after how many polls without a reader a run is no longer watched. A reader between two calls of Next
// is not counted as one, so the ring outlives such pauses.
const idlePolls = 3

// retire ends the watch of a run that was idle for long, and reports whether it did.
func (h *Hub) retire(t *topic) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.readers > 0 {
		t.idle = 0
		return false
	}
	if t.idle++; t.idle < idlePolls {
		return false
	}
	delete(h.topics, t.runID)
	h.bytes -= t.drop()
	return true
}

// poll reads the run's tail again and again, for every hint may be lost.
func (h *Hub) poll(t *topic) {
	tick := time.NewTicker(h.o.Poll)
	defer tick.Stop()
	for {
		hinted := false
		select {
		case <-h.life.Done():
			h.mu.Lock()
			delete(h.topics, t.runID)
			h.bytes -= t.drop()
			h.mu.Unlock()
			return
		case <-t.poke:
			hinted = true
		case <-tick.C:
		}
		if !hinted && h.retire(t) {
			return
		}
		if err := h.refresh(h.life, t); err != nil && h.life.Err() == nil {
			h.o.Logger.Warn("poll of a watched run failed", "run", t.runID, "error", err)
		}
	}
}

// refresh learns the run's end from the log.
func (h *Hub) refresh(ctx context.Context, t *topic) error {
	if _, ended, _ := t.state(); ended {
		return nil
	}
	tail, err := h.o.Log.Tail(ctx, t.runID)
	if errors.Is(err, ErrEmpty) {
		t.advance(0, false)
		return nil
	}
	var gone *ExpiredError
	if errors.As(err, &gone) { // of an ended run: nothing is left to read
		t.advance(gone.Through, true)
		return nil
	}
	if err != nil {
		return err
	}
	t.advance(tail.Last, tail.Terminal)
	return nil
}
