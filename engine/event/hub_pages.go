package event

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
)

// Bounds of one read of the log by a hub.
const (
	pageEvents   = 1024      // most events of a page, more only where one chunk has more
	firstEvents  = 256       // of the first page of a run whose events are of unknown size
	pageTarget   = 512 << 10 // bytes that a page should have at most, as far as can be foreseen
	decodedBytes = 4         // a decoded event takes about so many times the bytes of the encoded one, with that
)

// page is consecutive verified chunks that one read brought.
type page struct {
	runID   string
	after   int64 // the read's cursor
	through int64 // last sequence of the last chunk; after where the log does not show the next event
	chunks  []*held
	bytes   int64
}

// pages keeps what was read from logs for a moment, so that those who replay the same run share the reads. The least
// recently used go first.
type pages struct {
	most int64

	mu      sync.Mutex
	bytes   int64
	used    *list.List                 // of *page
	runs    map[string][]*list.Element // by run
	reading map[readKey]*reading
}

type readKey struct {
	runID string
	after int64
}

// reading is a read in progress; the others are set before done is closed.
type reading struct {
	done chan struct{}
	page *page
	err  error
	left bool // err came when whoever read had left: it says nothing to others, whatever words the log has for that
}

func newPages(most int64) pages {
	return pages{most: most, used: list.New(), runs: map[string][]*list.Element{}, reading: map[readKey]*reading{}}
}

// find returns the kept page that holds the event behind the cursor.
func (p *pages) find(runID string, cursor int64) *page {
	for _, e := range p.runs[runID] {
		if got, _ := e.Value.(*page); got.after <= cursor && cursor < got.through {
			p.used.MoveToBack(e)
			return got
		}
	}
	return nil
}

func (p *pages) keep(got *page) {
	if got.bytes > p.most/4 || got.through == got.after {
		return
	}
	p.runs[got.runID] = append(p.runs[got.runID], p.used.PushBack(got))
	for p.bytes += got.bytes; p.bytes > p.most; {
		p.remove(p.used.Front())
	}
}

func (p *pages) remove(e *list.Element) {
	old, _ := p.used.Remove(e).(*page)
	p.bytes -= old.bytes
	rest := p.runs[old.runID]
	for i := range rest {
		if rest[i] == e {
			rest[i] = rest[len(rest)-1]
			rest[len(rest)-1] = nil
			rest = rest[:len(rest)-1]
			break
		}
	}
	if p.runs[old.runID] = rest; len(rest) == 0 {
		delete(p.runs, old.runID)
	}
}

// drop lets go what is kept of the run.
func (p *pages) drop(runID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.runs[runID]) > 0 {
		p.remove(p.runs[runID][0])
	}
}

// page is the page with the event behind the cursor: a kept one, the one that another reader is reading, or a new one. It
// holds no chunk where the log does not show that event.
func (h *Hub) page(ctx context.Context, t *topic, cursor int64) (*page, error) {
	p := &h.pages
	for {
		p.mu.Lock()
		if got := p.find(t.runID, cursor); got != nil {
			p.mu.Unlock()
			return got, nil
		}
		key := readKey{t.runID, cursor}
		r := p.reading[key]
		if r == nil {
			r = &reading{done: make(chan struct{})}
			p.reading[key] = r
			p.mu.Unlock()
			h.readPage(ctx, t, key, r)
			return r.page, r.err
		}
		p.mu.Unlock()
		select {
		case <-r.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		switch {
		case r.err == nil && r.page.through > cursor:
			return r.page, nil
		case r.err != nil && !r.left:
			return nil, r.err
		} // else it was the other reader's context that ended, or it looked too early
	}
}

// readPage reads one and keeps it.
func (h *Hub) readPage(ctx context.Context, t *topic, key readKey, r *reading) {
	defer func() {
		h.pages.mu.Lock()
		defer h.pages.mu.Unlock()
		delete(h.pages.reading, key)
		if r.err == nil {
			if r.page == nil { // a panic
				r.err = errors.New("event hub: read failed")
			} else if !t.retired() { // else nothing would drop it but others
				h.pages.keep(r.page)
			}
		}
		close(r.done)
	}()
	r.page, r.err = h.fromLog(ctx, t, key.after)
	r.left = r.err != nil && ctx.Err() != nil
}

// fromLog reads the chunks that follow the cursor without a gap.
func (h *Hub) fromLog(ctx context.Context, t *topic, after int64) (*page, error) {
	events := int64(firstEvents)
	if d := t.density(); d > 0 {
		events = min(max(pageTarget/d, firstEvents), pageEvents)
	}
	chunks, err := h.o.Log.Read(ctx, t.runID, after, int(events))
	if err != nil {
		return nil, fmt.Errorf("failed to read events of %s after %d: %w", t.runID, after, err)
	}
	got := &page{runID: t.runID, after: after, through: after}
	for _, c := range chunks {
		if c.Last <= got.through {
			continue
		}
		if c.First > got.through+1 {
			break // a gap: what is before it is delivered, the rest is read again
		}
		if err := c.Verify(); err != nil {
			if len(got.chunks) > 0 {
				break // what is before the damage is delivered, and then this is found again
			}
			return nil, fmt.Errorf("%w: %w", ErrIntegrity, err)
		}
		got.chunks = append(got.chunks, hold(c))
		got.through = c.Last
		got.bytes += int64(len(c.Body)) * decodedBytes
	}
	return got, nil
}

// readAhead begins to read and decode what follows the page, unless that is there or on its way.
func (h *Hub) readAhead(t *topic, after int64) {
	h.pages.mu.Lock()
	_, busy := h.pages.reading[readKey{t.runID, after}]
	there := h.pages.find(t.runID, after) != nil
	h.pages.mu.Unlock()
	if busy || there {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.topics[t.runID] != t {
		return
	}
	h.wg.Go(func() {
		ctx, cancel := context.WithTimeout(h.life, pollTimeout)
		defer cancel()
		got, err := h.page(ctx, t, after)
		if err != nil {
			return // whoever needs it will see
		}
		for _, k := range got.chunks {
			_, _ = k.decoded()
		}
	})
}
