package event

import (
	"container/list"
	"sort"
	"sync"
	"time"
)

// topic is what the hub knows of one watched run: how far its log reaches, the newest of its chunks, and who waits.
type topic struct {
	runID  string
	asking chan struct{} // held by the reader that asks the log for its end; one place

	// Guarded by Hub.mu.
	place  *list.Element // among those that are due
	next   time.Time     // of the next poll
	hinted bool          // it waits to be polled at once
	polled bool          // a poll is in progress
	again  bool          // another one follows

	mu      sync.Mutex
	gone    bool  // it is watched no more
	known   bool  // the log was asked at least once
	top     int64 // highest sequence known to be durable
	ended   bool  // top is the terminal
	ring    []*held
	events  int
	bytes   int64
	visited bool // a reader came since the last look
	idle    int  // looks without a reader
	waiting []*Subscription
	round   uint64 // of those in waiting
	spare   []*Subscription
}

// held is a chunk in memory. It is decoded by its first reader, once for all of them.
type held struct {
	chunk  Chunk
	alone  []*held // itself: what most deliveries are made of
	once   sync.Once
	events []Event
	err    error
}

func hold(c Chunk) *held {
	k := &held{chunk: c}
	k.alone = []*held{k}
	return k
}

func (k *held) decoded() ([]Event, error) {
	k.once.Do(func() { k.events, k.err = k.chunk.Events() })
	return k.events, k.err
}

// wakening is a round of readers to be woken.
type wakening struct {
	topic *topic
	subs  []*Subscription
}

func (w wakening) call() {
	for i, s := range w.subs {
		s.wake()
		w.subs[i] = nil
	}
	if w.topic != nil && cap(w.subs) > 0 {
		w.topic.mu.Lock()
		w.topic.spare = w.subs[:0]
		w.topic.mu.Unlock()
	}
}

func newTopic(runID string) *topic {
	return &topic{runID: runID, asking: make(chan struct{}, 1), round: 1}
}

// state is the end of the log as far as known; known is false until the log or a writer has told.
func (t *topic) state() (top int64, ended, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.top, t.ended, t.known
}

// behind reports whether the topic does not know yet that the log reaches last.
func (t *topic) behind(last int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.known || t.top < last
}

// advance raises the known end of the log. It never goes back: a late read may be older than a hint.
func (t *topic) advance(last int64, ended bool) wakening {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.raise(last, ended)
}

// raise is advance for holders of the lock.
func (t *topic) raise(last int64, ended bool) wakening {
	if t.known && last <= t.top && (!ended || t.ended) {
		return wakening{}
	}
	t.known = true
	if last >= t.top {
		t.top, t.ended = last, t.ended || ended
	}
	return t.everybody()
}

// everybody takes out who waits. For holders of the lock.
func (t *topic) everybody() wakening {
	w := wakening{topic: t, subs: t.waiting}
	t.waiting, t.spare = t.spare, nil
	t.round++
	return w
}

// end says that the topic is watched no more.
func (t *topic) end() wakening {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone = true
	return t.everybody()
}

// retire ends the topic where it was idle for long, and reports whether it did.
func (t *topic) retire() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.visited || len(t.waiting) > 0 {
		t.idle = 0
	} else {
		t.idle++
	}
	t.visited = false
	t.gone = t.idle >= idlePolls
	return t.gone
}

// retired reports whether the topic is watched no more.
func (t *topic) retired() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gone
}

// look is what a reader at the cursor finds.
type look struct {
	gone, known bool
	top         int64
	ended       bool    // the reader has everything of an ended run
	found       bool    // there are events behind the cursor
	span        []*held // those of them that the ring holds and that make one delivery
	through     int64   // last sequence of the delivery
	waits       bool    // the reader waits for what follows it
}

// read looks for events after the cursor. Where there is none yet, or none behind what it found, the reader waits from now
// on: nothing can come between.
func (t *topic) read(s *Subscription, limit int) (l look) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l = look{gone: t.gone, known: t.known, top: t.top, found: t.top > s.cursor}
	t.visited = true
	switch {
	case l.gone, !l.known:
	case l.found:
		t.strike(s)
		i := len(t.ring) - 1
		if i < 0 || t.ring[i].chunk.First != s.cursor+1 { // most readers lack the newest only
			i = sort.Search(len(t.ring), func(i int) bool { return t.ring[i].chunk.Last > s.cursor })
		}
		if i < len(t.ring) && t.ring[i].chunk.First <= s.cursor+1 {
			l.span, l.through = span(t.ring[i:], s.cursor, limit)
			if l.waits = l.through >= t.top && !t.ended; l.waits {
				t.wait(s)
			}
		}
	case t.ended:
		t.strike(s)
		l.ended = true
	default:
		t.wait(s)
	}
	return l
}

// wait puts the reader among those that wait. For holders of the lock.
func (t *topic) wait(s *Subscription) {
	if s.round != t.round {
		t.waiting = append(t.waiting, s)
		s.round, s.slot = t.round, len(t.waiting)-1
	}
}

// strike takes the reader from among those that wait. For holders of the lock.
func (t *topic) strike(s *Subscription) {
	if s.round != t.round {
		return
	}
	last := len(t.waiting) - 1
	moved := t.waiting[last]
	t.waiting[s.slot], moved.slot = moved, s.slot
	t.waiting[last] = nil
	t.waiting = t.waiting[:last]
	s.round = 0
}

// publish takes a durable chunk and returns by how many bytes the ring grew. Only the chunk that follows the ring's
// last is added to it. One that is older is left to the log. One beyond a gap makes the ring begin anew, for what is
// missing has to be read from the log anyway.
func (t *topic) publish(c Chunk, o HubOptions, spare int64) (grown int64, woken wakening) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.bytes
	if n := len(t.ring); n > 0 && c.First != t.ring[n-1].chunk.Last+1 {
		if c.Last <= t.ring[n-1].chunk.Last {
			return 0, wakening{}
		}
		t.clear()
	}
	t.ring = append(t.ring, hold(c))
	t.events += c.Len()
	t.bytes += int64(len(c.Body))
	for len(t.ring) > 0 && (t.events > o.RingEvents || t.bytes > o.RingBytes || t.bytes-before > spare) {
		oldest := t.ring[0].chunk
		t.ring[0] = nil
		t.ring = t.ring[1:]
		t.events -= oldest.Len()
		t.bytes -= int64(len(oldest.Body))
	}
	woken = t.raise(c.Last, c.Terminal)
	return t.bytes - before, woken
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

// density is how many bytes an event of the run takes, as far as known.
func (t *topic) density() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.events == 0 {
		return 0
	}
	return t.bytes/int64(t.events) + 1
}

// await puts the reader among those that wait, whatever there is.
func (t *topic) await(s *Subscription) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone {
		s.wake()
		return
	}
	t.wait(s)
}

// leave takes the reader from among those that wait.
func (t *topic) leave(s *Subscription) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.strike(s)
}
