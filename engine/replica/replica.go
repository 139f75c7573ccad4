// Package replica knows the engines that share one store: which of them live, and what they tell each other.
//
// Liveness decides nothing about what is true: the fence in each run's log and the conditional updates of bindings do. It
// decides only when an engine takes over what another one drove. No clock is compared with another machine's: an engine
// is gone when it has left, or when its beat has not changed for a whole lease time on the clock of whoever looks.
package replica

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// DefaultLease is how long an engine's beat may stand still before its runs are taken over.
const DefaultLease = 3 * time.Second

// Sighting is one engine that has joined and not left.
type Sighting struct {
	ID   string // boot nonce
	Beat int64  // changes while the engine lives; two values are only compared for being equal
	Tool bool   // it is no engine but a tool of the operator's that writes: it drives nothing, and hears nothing
}

// Directory tells which engines have joined.
type Directory interface {
	// Sightings lists them, the one that asks included. An engine that is known to have died is not listed.
	Sightings(ctx context.Context) ([]Sighting, error)
}

// Kind says what a hint is about.
type Kind string

// Kinds of hints.
const (
	LogGrew        Kind = "log"     // the run's log
	BindingChanged Kind = "binding" // the session's binding
	CancelAsked    Kind = "cancel"  // the run is to end
	Everything     Kind = "all"     // hints were lost; ID is empty
)

// Hint tells another engine where to look. It carries an id only, may be lost, and may come late or twice: whoever
// depends on one also polls.
type Hint struct {
	Kind Kind
	ID   string
}

// RosterOptions configure a Roster. Self and Directory are required.
type RosterOptions struct {
	Self      string
	Directory Directory
	Lease     time.Duration // default DefaultLease
	Look      time.Duration // pause between two looks; default a fifteenth of Lease
	// LastBeat is when this engine's last beat that arrived was sent. When that is about a lease ago, the others may have
	// taken its runs over: Doubted is called.
	LastBeat func() time.Time
	Changed  func() // an engine has gone; must not block
	Doubted  func() // this engine may be taken for gone; must not block
	Logger   *slog.Logger
}

// margin is the part of a lease after which an engine doubts itself: before the others take it for gone.
const margin = 3 // quarters

// Roster judges which engines live.
type Roster struct {
	o RosterOptions

	mu      sync.Mutex
	seen    map[string]seen // engines of the last look
	last    time.Time       // of the last look, on this engine's monotonic clock
	doubted bool
}

type seen struct {
	beat   int64
	tool   bool
	silent time.Duration // for how long that beat was looked at
	stale  bool          // it has stood still for a lease
}

// blink is the most that the time between two looks counts, as a part of the lease. Who was stopped together with the others, as
// in a container that is paused, has not seen them stand still, and gives them the time to beat again.
const blink = 4

// NewRoster makes a roster that has seen nothing. Until the first look every other engine is gone.
func NewRoster(o RosterOptions) *Roster {
	o.Lease = cmp.Or(max(o.Lease, 0), DefaultLease)
	o.Look = cmp.Or(max(o.Look, 0), o.Lease/15)
	nothing := func() {}
	if o.Changed == nil {
		o.Changed = nothing
	}
	if o.Doubted == nil {
		o.Doubted = nothing
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Roster{o: o, seen: map[string]seen{}}
}

// Run looks again and again until ctx ends.
func (r *Roster) Run(ctx context.Context) {
	tick := time.NewTicker(r.o.Look)
	defer tick.Stop()
	for {
		if err := r.Look(ctx); err != nil && ctx.Err() == nil {
			r.o.Logger.Warn("other engines not seen", "error", err)
		}
		r.judgeSelf()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Look reads the directory once. A directory that cannot be read changes no judgement.
func (r *Roster) Look(ctx context.Context) error {
	found, err := r.o.Directory.Sightings(ctx)
	if err != nil {
		return err
	}
	if r.observe(time.Now(), found) {
		r.o.Changed()
	}
	return nil
}

// observe takes a look in, and reports whether an engine has gone since the one before.
func (r *Roster) observe(now time.Time, found []Sighting) (gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	passed := min(now.Sub(r.last), r.o.Lease/blink)
	next := make(map[string]seen, len(found))
	for _, f := range found {
		s, known := r.seen[f.ID]
		switch {
		case !known || s.beat != f.Beat:
			s = seen{beat: f.Beat, tool: f.Tool}
		case !s.stale && f.ID != r.o.Self:
			if s.silent += passed; s.silent >= r.o.Lease {
				s.stale, gone = true, gone || !f.Tool
				r.o.Logger.Warn("engine has stopped beating", "engine", f.ID, "tool", f.Tool)
			}
		}
		next[f.ID] = s
	}
	for id, s := range r.seen {
		if _, there := next[id]; !there && !s.tool {
			gone = true
			r.o.Logger.Info("engine has gone", "engine", id)
		}
	}
	r.seen, r.last = next, now
	return gone
}

// judgeSelf doubts this engine once when its beats do not arrive.
func (r *Roster) judgeSelf() {
	if r.o.LastBeat == nil {
		return
	}
	late := time.Since(r.o.LastBeat()) > r.o.Lease*margin/4
	r.mu.Lock()
	news := late && !r.doubted
	r.doubted = late
	r.mu.Unlock()
	if news {
		r.o.Logger.Warn("this engine was late to say that it lives; it lets go of its runs")
		r.o.Doubted()
	}
}

// Gone says whether the engine holds nothing any more: it has left, died, or not beaten for a lease.
func (r *Roster) Gone(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, there := r.seen[id]
	return !there || s.stale
}

// Dead says whether the engine has left or died, as far as was seen. One that only stands still has not: it may go on.
func (r *Roster) Dead(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, there := r.seen[id]
	return !there
}

// Still says whether the engine has been seen to stand still for a lease, at that beat. One that was never seen, or has beaten
// since the last look, has not.
func (r *Roster) Still(s Sighting) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, there := r.seen[s.ID]
	return there && known.stale && known.beat == s.Beat
}

// Alone says whether no other engine has joined, as far as was seen.
func (r *Roster) Alone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, s := range r.seen {
		if id != r.o.Self && !s.tool {
			return false
		}
	}
	return true
}

// Living lists the engines that live, this one included, in the order of their ids.
func (r *Roster) Living() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for id, s := range r.seen {
		if !s.stale && !s.tool {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
