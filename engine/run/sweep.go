package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/session"
)

const sweepPage = 200

// ownPatience is how long a lease of this engine must be seen with nobody who drives it: between the taking of a lease and
// the driving lie two steps.
const ownPatience = time.Second

// watch remembers since when something is seen unchanged. What a sweep does not see again is forgotten by it.
type watch map[string]observation

type observation struct {
	version string
	since   time.Time
	round   time.Time
}

// unchanged says whether key has been seen with that version for as long as patience.
func (w watch) unchanged(key, version string, now time.Time, patience time.Duration) bool {
	o, ok := w[key]
	if !ok || o.version != version {
		o = observation{version: version, since: now}
	}
	o.round = now
	w[key] = o
	return now.Sub(o.since) >= patience
}

// forget drops what was not seen at now.
func (w watch) forget(now time.Time) {
	for key, o := range w {
		if !o.round.Equal(now) {
			delete(w, key)
		}
	}
}

// Recover takes over what engines that are gone have left: every binding that one of them held gets a new lease and its
// run is driven on, or to its end; admissions that were cut off are finished or refused; with no other engine about,
// workers that serve no busy binding are ended. It returns when every lease is taken; the runs go on by themselves. It
// must be called before the first Start.
func (c *Coordinator) Recover(ctx context.Context) error { return c.sweep(ctx, true) }

// Sweep is Recover beside engines that live: what is abandoned has to be seen so for a time. It is done again and again,
// and harmless at any time.
func (c *Coordinator) Sweep(ctx context.Context) error { return c.sweep(ctx, false) }

func (c *Coordinator) sweep(ctx context.Context, starting bool) error {
	c.sweeping.Lock()
	defer c.sweeping.Unlock()
	s := &sweep{c: c, now: time.Now(), starting: starting, hasty: starting && c.alone(), keep: map[string]bool{}, driven: map[string]bool{},
		pending: map[string]string{}}
	c.mu.Lock()
	s.doubted = maps.Clone(c.doubted)
	c.mu.Unlock()
	decided, err := s.look(ctx)
	// What was claimed is driven on, whatever else failed: nobody else will.
	for _, taken := range s.claims {
		c.launch(taken.run, taken.binding, true)
	}
	for _, r := range decided {
		_, failed := c.admitResume(ctx, r)
		if _, refused := problem.As(failed); failed != nil && !refused {
			err = errors.Join(err, failed)
		}
	}
	if err != nil {
		return err
	}
	c.seen.forget(s.now)
	c.mu.Lock()
	defer c.mu.Unlock()
	for runID := range s.doubted { // claimed, by whomever, or ended
		delete(c.doubted, runID)
	}
	return nil
}

// sweep is one pass over what is busy or unfinished.
type sweep struct {
	c        *Coordinator
	now      time.Time // of the monotonic clock
	starting bool      // this engine drives nothing yet
	hasty    bool      // and nobody else does: what looks abandoned is

	doubted map[string]bool // runs that this engine let go of before the sweep
	claims  []claim
	failed  []error           // what is tried again by the next sweep
	driven  map[string]bool   // runs that a binding holds
	pending map[string]string // interrupts, by session
	keep    map[string]bool   // workers that serve somebody
	found   map[string]int64  // workers that were there before any binding was read, with their leases
}

// claim is a run whose lease was taken over.
type claim struct {
	run     Run
	binding session.Binding
}

// abandoned says whether a step has been seen unfinished for so long that nobody can be at work on it.
func (s *sweep) abandoned(key, version string) bool {
	return s.c.seen.unchanged(key, version, s.now, s.c.Limits.AbandonedAfter) || s.hasty
}

// look claims and settles. It returns the decisions that are to be taken, also with an error.
func (s *sweep) look(ctx context.Context) (decided []Run, err error) {
	if s.hasty {
		// Before the bindings: a worker that another engine, which has come since, starts for one of them is not among these.
		if s.found, err = s.c.Workers.Leases(ctx); err != nil {
			return nil, fmt.Errorf("failed to list workers: %w", err)
		}
	}
	if err := s.bindings(ctx); err != nil {
		return nil, err
	}
	s.c.forgetDeadlines(s.now, s.pending)
	decided, err = s.unfinished(ctx)
	err = errors.Join(append(s.failed, err)...)
	// Before any run is driven on: a worker that one of them starts is not a left-over.
	if s.hasty && err == nil {
		err = s.workers(ctx)
	}
	return decided, err
}

// fail notes that one session or run could not be seen to. The others are, unless ctx has ended.
func (s *sweep) fail(ctx context.Context, err error) (goOn bool) {
	s.failed = append(s.failed, err)
	return ctx.Err() == nil
}

// bindings claims what nobody drives.
func (s *sweep) bindings(ctx context.Context) error {
	for after := ""; ; {
		page, err := s.c.Sessions.BusySessions(ctx, after, sweepPage)
		if err != nil {
			return fmt.Errorf("failed to list busy sessions: %w", err)
		}
		for _, b := range page {
			after = b.ID
			if err := s.binding(ctx, b); err != nil && !s.fail(ctx, err) {
				return err
			}
		}
		if len(page) < sweepPage {
			return nil
		}
	}
}

func (s *sweep) binding(ctx context.Context, b session.Busy) error {
	c := s.c
	if b.Interrupt != "" {
		s.pending[b.ID] = b.Interrupt
	}
	if b.Run == "" {
		if !s.starting && c.expires(b.ID, b.Interrupt) {
			return nil
		}
		full, err := c.Sessions.Session(ctx, b.ID)
		if err != nil {
			return fmt.Errorf("failed to read session %s: %w", b.ID, err)
		}
		c.expireLater(full)
		s.keepWorker(full)
		return nil
	}
	s.driven[b.Run] = true
	switch {
	case b.Draining == b.Run: // the engine that cleared the conversation may have died before it asked for the cancel
		c.cancelLive(b.Run, event.CancelSessionCleared)
	case b.Urgent: // and the one that queued a run to take its place likewise
		c.cancelLive(b.Run, event.CancelSuperseded)
	}
	known := c.isHalted(b.Run)
	if !known && !s.claimable(b) {
		return nil
	}
	// Before the claim: of a run that cannot be read, no sweep raises the generation in vain.
	r, err := c.Runs.Run(ctx, b.Run)
	switch {
	case err != nil:
		return fmt.Errorf("failed to read active run %s of session %s: %w", b.Run, b.ID, err)
	case r.Halted != nil:
		c.noteHalted(r.ID)
		return s.halted(ctx, r, b)
	case known: // and its document does not say so, or no more
		c.unhalt(r.ID)
		return nil
	}
	taken, err := c.takeOver(ctx, b, r)
	if err != nil {
		return err
	}
	s.keepWorker(taken.binding)
	if taken.run.ID != "" {
		s.claims = append(s.claims, taken)
	}
	return nil
}

// claimable says whether nobody drives the binding's run.
func (s *sweep) claimable(b session.Busy) bool {
	c := s.c
	c.mu.Lock()
	_, live := c.live[b.Run]
	c.mu.Unlock()
	switch {
	case live:
		return false
	case b.Owner == c.Boot:
		return s.starting || s.doubted[b.Run] || c.seen.unchanged("lease "+b.ID, b.Run, s.now, ownPatience)
	}
	return c.gone(b.Owner)
}

func (s *sweep) keepWorker(b session.Binding) {
	if b.Sandbox != nil {
		s.keep[b.Sandbox.Addr] = true
	}
}

// takeOver claims the lease of a busy binding's run from the owner that was seen. The claim has no run where the binding
// has changed hands meanwhile.
func (c *Coordinator) takeOver(ctx context.Context, seen session.Busy, r Run) (claim, error) {
	changed := errors.New("the binding has changed")
	b, err := c.mutate(ctx, seen.ID, func(b session.Binding, op session.Op) (session.Binding, error) {
		if b.Active == nil || b.Active.Run != seen.Run || b.Active.Owner != seen.Owner {
			return b, changed
		}
		return session.Claim(b, seen.Run, c.Boot, op)
	})
	if errors.Is(err, changed) {
		return claim{binding: b}, nil
	}
	if err != nil {
		return claim{}, err
	}
	c.Log.Info("run taken over", "run", r.ID, "session", b.ID, "status", r.Status, "lease_gen", b.Active.Gen, "from", seen.Owner)
	return claim{run: r, binding: b}, nil
}

// unfinished settles runs that no busy binding knows of: the terminal is logged but not projected, the admission was cut
// off before the binding, or a run was taken off its queue and not ended. It returns the decisions that were accepted
// and are not on their binding.
func (s *sweep) unfinished(ctx context.Context) (decided []Run, err error) {
	for after := ""; ; {
		page, err := s.c.Runs.UnfinishedRuns(ctx, after, sweepPage)
		if err != nil {
			return decided, fmt.Errorf("failed to list unfinished runs: %w", err)
		}
		for _, r := range page {
			after = r.ID
			if s.driven[r.ID] || !s.abandoned("run "+r.ID, fmt.Sprint(r.Rev)) || r.Halted != nil && r.CancelReason == "" {
				continue
			}
			if r.Status == StatusAdmitting && r.Continues != nil { // its decision was accepted: it is taken, or refused for good
				decided = append(decided, r)
				continue
			}
			switch err := s.run(ctx, r); {
			case errors.Is(err, event.ErrCorrupt): // nothing that another try would mend
				s.c.Log.Error("run halted: its log is damaged", "run", r.ID, "session", r.SessionID, "error", err)
				s.c.halt(ctx, r.ID, err)
			case err != nil && !s.fail(ctx, err):
				return decided, err
			}
		}
		if len(page) < sweepPage {
			return decided, nil
		}
	}
}

// run settles one.
func (s *sweep) run(ctx context.Context, r Run) error {
	c := s.c
	if r.Halted != nil {
		return c.giveUp(ctx, r)
	}
	if r.Status == StatusAdmitting {
		if r.IdempotencyKey != "" {
			return nil // invisible; a repeat of its key finishes it
		}
		_, err := c.reject(ctx, r, Refusal{Code: string(problem.Capacity), Message: "the engine stopped before the run was admitted"})
		if _, refused := problem.As(err); err != nil && !refused {
			return err
		}
		return nil
	}
	ended, err := c.project(ctx, r.ID)
	if err != nil || ended {
		return err
	}
	if r.Status == StatusQueued {
		if r.CancelReason != "" && r.Ord == 0 { // asked to end, and still in its queue
			taken, err := c.unqueue(ctx, r, r.CancelReason)
			if err != nil || taken {
				return err
			}
		}
		return c.sweepDropped(ctx, r)
	}
	b, err := c.Sessions.Session(ctx, r.SessionID)
	if err != nil {
		return fmt.Errorf("failed to read session %s: %w", r.SessionID, err)
	}
	if b.Active == nil || b.Active.Run != r.ID { // not even by now
		c.Log.Error("integrity: run is unfinished, but its session does not hold it", "run", r.ID, "session", r.SessionID)
	}
	return nil
}

// workers ends those that serve neither a run nor a person who decides. An idle conversation loses its warm worker by
// that, and nothing else: its state is kept apart from it.
func (s *sweep) workers(ctx context.Context) error {
	for addr, lease := range s.found {
		if s.keep[addr] {
			continue
		}
		err := s.c.Workers.Destroy(ctx, addr, lease)
		if errors.Is(err, harness.ErrStaleLease) {
			continue // another engine has begun a turn on it since
		}
		if err != nil {
			s.c.Log.Warn("left-over worker not destroyed", "addr", addr, "error", err)
		}
	}
	return nil
}
