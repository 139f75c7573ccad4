package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

// Errors of Expire. Nothing was changed.
var (
	// ErrLive: the run has not ended, or its conversation still holds it.
	ErrLive = errors.New("retention: run has not ended")
	// ErrNeeded: a person may still decide about the run, or a run that goes on from it is at work: its log tells what is open.
	ErrNeeded = errors.New("retention: log of run is still needed")
)

const (
	page      = 200 // runs in one listing
	batch     = 32  // chunks removed in one transaction: at most 32 MiB
	attempts  = 32  // of one conditional update
	followers = 1000

	maxPause = 10 * time.Minute // between two sweeps
)

// Bindings reads the documents of conversations; see session.Store.
type Bindings interface {
	Session(ctx context.Context, id string) (session.Binding, error)
}

// Options of New. Store and Sessions are required.
type Options struct {
	Store    Store
	Sessions Bindings
	Keep     time.Duration // how long a log is kept after its run's end; 0: for ever
	Every    time.Duration // how often Run looks; default: Keep/10, between 1 s and 10 min; 10 min where Keep is 0
	Now      func() time.Time
	Logger   *slog.Logger
}

// Keeper expires logs. It holds nothing, so any number of them may work on one store.
type Keeper struct{ o Options }

// New makes a keeper.
func New(o Options) *Keeper {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	every := maxPause
	if o.Keep > 0 {
		every = min(max(o.Keep/10, time.Second), maxPause)
	}
	o.Every = cmp.Or(max(o.Every, 0), every)
	return &Keeper{o: o}
}

// Run sweeps at once and then every Options.Every until ctx ends. What fails is logged and tried again the next time.
func (k *Keeper) Run(ctx context.Context) {
	tick := time.NewTicker(k.o.Every)
	defer tick.Stop()
	for {
		swept, err := k.Sweep(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			k.o.Logger.Warn("retention is not done, it will be tried again", "error", err)
		case swept.Runs > 0:
			k.o.Logger.Info("logs have expired", "runs", swept.Runs, "chunks", swept.Chunks)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Swept is what a sweep did.
type Swept struct{ Runs, Chunks int }

// Sweep finishes what was begun before, then expires the whole log of every run that ended Options.Keep ago.
func (k *Keeper) Sweep(ctx context.Context) (total Swept, err error) {
	for after := ""; ; {
		runs, err := k.o.Store.PruningRuns(ctx, after, page)
		if err != nil {
			return total, fmt.Errorf("failed to list runs with expired logs: %w", err)
		}
		for _, r := range runs {
			after = r.ID
			n, err := k.prune(ctx, r)
			if total.Runs, total.Chunks = total.Runs+1, total.Chunks+n; err != nil {
				return total, err
			}
		}
		if len(runs) < page {
			break
		}
	}
	if k.o.Keep <= 0 {
		return total, nil
	}
	until := k.o.Now().Add(-k.o.Keep)
	for after := (Place{}); ; {
		runs, err := k.o.Store.EndedRuns(ctx, until, after, page)
		if err != nil {
			return total, fmt.Errorf("failed to list ended runs: %w", err)
		}
		for _, r := range runs {
			after = Place{EndedAt: *r.EndedAt, ID: r.ID}
			n, err := k.expire(ctx, r, until)
			switch {
			case errors.Is(err, ErrLive), errors.Is(err, ErrNeeded):
				continue
			case err != nil:
				return total, err
			}
			total.Runs, total.Chunks = total.Runs+1, total.Chunks+n
		}
		if len(runs) < page {
			return total, nil
		}
	}
}

// Expire takes the whole log of an ended run away, however young it is, and returns the run as it is then. It may be
// repeated. run.ErrNotFound, ErrLive and ErrNeeded are wrapped.
func (k *Keeper) Expire(ctx context.Context, runID string) (run.Run, error) {
	r, err := k.o.Store.Run(ctx, runID)
	if err != nil {
		return run.Run{}, fmt.Errorf("failed to read run %s: %w", runID, err)
	}
	if _, err := k.expire(ctx, r, k.o.Now()); err != nil {
		return run.Run{}, err
	}
	return k.o.Store.Run(ctx, runID)
}

func (k *Keeper) expire(ctx context.Context, r run.Run, until time.Time) (chunks int, err error) {
	if err := k.free(ctx, r, until); err != nil {
		return 0, err
	}
	r, err = k.update(ctx, r.ID, func(r *run.Run) bool {
		if r.ExpiredThrough >= r.LastSequence {
			return false
		}
		r.ExpiredThrough, r.Pruned = r.LastSequence, false
		return true
	})
	if err != nil {
		return 0, err
	}
	return k.prune(ctx, r)
}

// free says why the run's log may not go yet; nil where nobody needs it. A run that was interrupted is needed for as long
// as another may go on from it, or one that does has not been over since until.
func (k *Keeper) free(ctx context.Context, r run.Run, until time.Time) error {
	b, err := k.o.Sessions.Session(ctx, r.SessionID)
	if err != nil && !errors.Is(err, session.ErrNotFound) {
		return fmt.Errorf("failed to read session %s: %w", r.SessionID, err)
	}
	first := r.ID
	for range followers {
		switch {
		case !r.Status.Ended() || r.Status == run.StatusRejected || b.Active != nil && b.Active.Run == r.ID:
			if r.ID == first {
				return fmt.Errorf("run %s is %s: %w", r.ID, r.Status, ErrLive)
			}
			return fmt.Errorf("run %s goes on as %s: %w", first, r.ID, ErrNeeded)
		case r.ID != first && (r.EndedAt == nil || r.EndedAt.After(until)):
			return fmt.Errorf("run %s went on as %s: %w", first, r.ID, ErrNeeded)
		case b.Pending != nil && b.Pending.Run == r.ID:
			return fmt.Errorf("interrupt %s waits for a decision: %w", b.Pending.Interrupt, ErrNeeded)
		case r.Interrupt == nil:
			return nil
		}
		next := r.Interrupt.ResumedBy
		if d := b.Decided; d != nil && d.Interrupt == id.OfInterrupt(r.ID) {
			next = d.Run
		}
		if next == "" {
			return nil
		}
		r, err = k.o.Store.Run(ctx, next)
		switch {
		case errors.Is(err, run.ErrNotFound): // decided, and not inserted yet
			return fmt.Errorf("run %s goes on as %s: %w", first, next, ErrNeeded)
		case err != nil:
			return fmt.Errorf("failed to read run %s: %w", next, err)
		}
	}
	return fmt.Errorf("run %s is continued more than %d times: %w", first, followers, ErrNeeded)
}

// prune removes what has expired and says so in the document.
func (k *Keeper) prune(ctx context.Context, r run.Run) (chunks int, err error) {
	for {
		n, err := k.o.Store.Prune(ctx, r.ID, batch)
		if err != nil {
			return chunks, fmt.Errorf("failed to remove the expired log of run %s: %w", r.ID, err)
		}
		if chunks += n; n == 0 {
			break
		}
	}
	_, err = k.update(ctx, r.ID, func(now *run.Run) bool {
		if now.Pruned || now.ExpiredThrough != r.ExpiredThrough { // more has expired meanwhile: whoever did that goes on
			return false
		}
		now.Pruned = true
		return true
	})
	return chunks, err
}

// update applies an idempotent change by conditional update.
func (k *Keeper) update(ctx context.Context, runID string, change func(*run.Run) bool) (run.Run, error) {
	for range attempts {
		r, err := k.o.Store.Run(ctx, runID)
		if err != nil {
			return r, fmt.Errorf("failed to read run %s: %w", runID, err)
		}
		if !change(&r) {
			return r, nil
		}
		r.Rev++
		switch err := k.o.Store.UpdateRun(ctx, r); {
		case err == nil:
			return r, nil
		case !errors.Is(err, run.ErrRevision) && !errors.Is(err, run.ErrUnknownOutcome):
			return r, fmt.Errorf("failed to update run %s: %w", runID, err)
		}
	}
	return run.Run{}, fmt.Errorf("failed to update run %s: %w after %d attempts", runID, run.ErrRevision, attempts)
}
