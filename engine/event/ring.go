package event

import (
	"sort"
	"sync"
)

// topic is what the hub knows of one watched run: how far its log reaches, and the newest of its chunks.
type topic struct {
	runID   string
	poke    chan struct{} // asks the poller to read now
	readers int           // calls of Next in progress; guarded by Hub.mu
	idle    int           // polls without a reader; guarded by Hub.mu

	mu      sync.Mutex
	known   bool          // the log was asked at least once
	top     int64         // highest sequence known to be durable
	ended   bool          // top is the terminal
	changed chan struct{} // closed when any of the above changes
	ring    []*held       // consecutive, ascending
	events  int
	bytes   int64
}

// held is a chunk in the ring. It is decoded by its first reader, once for all of them.
type held struct {
	chunk  Chunk
	once   sync.Once
	events []Event
	err    error
}

func (k *held) decoded() ([]Event, error) {
	k.once.Do(func() { k.events, k.err = k.chunk.Events() })
	return k.events, k.err
}

func newTopic(runID string) *topic {
	return &topic{runID: runID, poke: make(chan struct{}, 1), changed: make(chan struct{})}
}

func (t *topic) pollNow() {
	select {
	case t.poke <- struct{}{}:
	default: // one is already on its way
	}
}

// state is the end of the log as far as known; known is false until the log or a writer has told.
func (t *topic) state() (top int64, ended, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.top, t.ended, t.known
}

// watch returns the state together with the channel that closes when it changes.
func (t *topic) watch() (top int64, ended bool, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.top, t.ended, t.changed
}

// advance raises the known end of the log. It never goes back: a late read may be older than a hint.
func (t *topic) advance(last int64, ended bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.raise(last, ended)
}

func (t *topic) raise(last int64, ended bool) {
	if t.known && last <= t.top && (!ended || t.ended) {
		return
	}
	t.known = true
	if last >= t.top {
		t.top, t.ended = last, t.ended || ended
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

// publish takes a durable chunk and returns by how many bytes the ring grew. Only the chunk that follows the ring's
// last is added to it. One that is older is left to the log. One beyond a gap makes the ring begin anew, for what is
// missing has to be read from the log anyway.
func (t *topic) publish(c Chunk, o HubOptions, spare int64) (grown int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.bytes
	if n := len(t.ring); n > 0 && c.First != t.ring[n-1].chunk.Last+1 {
		if c.Last <= t.ring[n-1].chunk.Last {
			return 0
		}
		t.clear()
	}
	t.ring = append(t.ring, &held{chunk: c})
	t.events += c.Len()
	t.bytes += int64(len(c.Body))
	for len(t.ring) > 0 && (t.events > o.RingEvents || t.bytes > o.RingBytes || t.bytes-before > spare) {
		oldest := t.ring[0].chunk
		t.ring[0] = nil
		t.ring = t.ring[1:]
		t.events -= oldest.Len()
		t.bytes -= int64(len(oldest.Body))
	}
	t.raise(c.Last, c.Terminal)
	return t.bytes - before
}

// drop empties the ring and returns how many bytes it held.
func (t *topic) drop() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.bytes
	t.clear()
	return n
}

func (t *topic) clear() { t.ring, t.events, t.bytes = nil, 0, 0 }

// after returns the ring's chunks from the one that holds sequence cursor+1, or nothing where the ring lacks it.
func (t *topic) after(cursor int64) []*held {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := sort.Search(len(t.ring), func(i int) bool { return t.ring[i].chunk.Last > cursor })
	if i == len(t.ring) || t.ring[i].chunk.First > cursor+1 {
		return nil
	}
	return append([]*held(nil), t.ring[i:]...)
}
