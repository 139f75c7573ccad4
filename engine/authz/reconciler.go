package authz

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Limits of a Reconciler.
const (
	// DefaultInterval is the pause between two sweeps of Reconciler.Run.
	DefaultInterval = 10 * time.Second
	sweepPage       = 100
	// doubtAge is how long a write that got no answer may still take effect: longer than servers work on a request.
	doubtAge = 10 * time.Second
	// maxRounds bounds how often one settling follows a document that changes under it.
	maxRounds = 8
)

// ErrChanged is returned by Documents.MarkApplied when the document is no longer as it was read.
var ErrChanged = errors.New("authz: document changed")

// Document is one document with an outbox, as far as reconciling needs it.
type Document struct {
	Object Object
	Outbox Outbox
	// Rev is the document's revision, for the conditional update of MarkApplied.
	Rev int64
	// Waits is true while a state waits for the tuples: CREATING, DELETING.
	Waits bool
}

// Settled is true when nothing is left to do: the desired tuples are applied, nobody may apply others, and no state waits.
func (d Document) Settled() bool { return !d.Waits && !d.Outbox.Pending() }

// Documents is the store of documents with an outbox, as a Reconciler uses it. It is implemented beside the documents.
type Documents interface {
	// Unsettled lists documents that are not Settled, ascending by object id, id > after, at most limit.
	Unsettled(ctx context.Context, after string, limit int) ([]Document, error)
	// Document reads one document, with the consistency of a deciding read; false when there is none.
	Document(ctx context.Context, object Object) (Document, bool, error)
	// MarkWriting puts the name among the writers (Outbox.Writing), by one conditional update on d.Rev, and returns the document
	// as it is then. It returns ErrChanged (wrapped) when the stored revision is another, or may be.
	MarkWriting(ctx context.Context, d Document, name string) (Document, error)
	// MarkApplied records, by one conditional update on d.Rev, that the tuples of d.Outbox.DesiredRev are applied
	// (Outbox.Applied) and that the names are no writers any more (Outbox.Wrote), and moves the state that waited for it:
	// CREATING to ACTIVE, DELETING to DELETED. It returns ErrChanged (wrapped) when the stored revision is another. An unknown
	// outcome is an error like any other; the next round reads the document again.
	MarkApplied(ctx context.Context, d Document, wrote []string) error
}

// ReconcilerOptions configure a Reconciler. Documents and Tuples are required.
type ReconcilerOptions struct {
	Documents Documents
	// Self names this life of this engine among the writers of outboxes; empty: a random name.
	Self string
	// Dead says whether the engine of that name has ended, and not only been silent for long; nil: every other one has.
	Dead     func(name string) bool
	Tuples   Tuples
	Interval time.Duration // pause between sweeps; 0: DefaultInterval
	Logger   *slog.Logger  // nil: slog.Default()
}

// Reconciler brings tuples in line with documents: the document says what should hold, the reconciler makes it so and
// records that in the document. It applies state, not operations, serially per object within this process. It may be
// interrupted at any point: what was begun is finished by a later call. A write that got no answer may take effect
// late, over a newer state, and so may one of an engine that was stopped in the middle: the document remembers who may be
// writing, and the tuples are applied once more when that can no longer happen, by the writer or, when it is dead, by another.
type Reconciler struct {
	documents Documents
	tuples    Tuples
	interval  time.Duration
	logger    *slog.Logger
	locks     Locks
	now       func() time.Time
	self      string
	isDead    func(name string) bool

	mu     sync.Mutex
	doubts map[Object]time.Time // when the last write failed that may still take effect
	dead   map[string]time.Time // since when writers have been seen dead without a break
}

// NewReconciler returns a Reconciler. It starts nothing.
func NewReconciler(o ReconcilerOptions) (*Reconciler, error) {
	if o.Documents == nil || o.Tuples == nil {
		return nil, errors.New("authz: a reconciler needs documents and tuples")
	}
	if o.Interval <= 0 {
		o.Interval = DefaultInterval
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Self == "" {
		o.Self = rand.Text()
	}
	if o.Dead == nil {
		o.Dead = func(string) bool { return true }
	}
	return &Reconciler{
		self:      o.Self,
		isDead:    o.Dead,
		dead:      map[string]time.Time{},
		documents: o.Documents,
		tuples:    o.Tuples,
		interval:  o.Interval,
		logger:    o.Logger,
		now:       time.Now,
		doubts:    map[Object]time.Time{},
	}, nil
}

// Settle settles one document; call it right after the write that changed the outbox. When it returns nil the tuples that the
// document wanted were applied, or it is gone; another engine may still be at work on it. On an error the document stays
// unsettled and a sweep will try again.
func (r *Reconciler) Settle(ctx context.Context, object Object) error {
	return r.settle(ctx, object, false)
}

// settle applies also what is applied already where anew is true.
func (r *Reconciler) settle(ctx context.Context, object Object, anew bool) error {
	unlock, err := r.locks.Lock(ctx, object)
	if err != nil {
		return fmt.Errorf("failed to settle tuples of %s: %w", object, err)
	}
	defer unlock()
	doubted, doubtful := r.doubt(object)
	begun := r.now()
	trusted := !doubtful || begun.Sub(doubted) >= doubtAge
	for range maxRounds {
		d, found, err := r.documents.Document(ctx, object)
		if err != nil {
			return fmt.Errorf("failed to read document of %s: %w", object, err)
		}
		mine := slices.Contains(d.Outbox.Writers, r.self)
		dead, past := r.deadOf(d.Outbox.Writers)
		needed := anew || mine || dead || doubtful || d.Waits || d.Outbox.AppliedRev < d.Outbox.DesiredRev
		if !found || !needed {
			if doubtful && trusted {
				r.trust(object)
			}
			return nil
		}
		if !mine {
			d, err = r.documents.MarkWriting(ctx, d, r.self)
			if errors.Is(err, ErrChanged) {
				continue
			}
			if err != nil {
				return fmt.Errorf("failed to mark tuples of %s to be written: %w", object, err)
			}
		}
		// The tuples are applied even when the outbox says that they were: what is unsettled by its state alone may
		// come from a crash between applying and marking.
		if err := r.tuples.Apply(ctx, object, d.Outbox.Desired); err != nil {
			r.distrust(object)
			return fmt.Errorf("failed to apply tuples of %s: %w", object, err)
		}
		if trusted { // else a write of this engine's own may still take effect
			past = append(past, r.self)
		}
		err = r.documents.MarkApplied(ctx, d, past)
		switch {
		case err == nil:
			if doubtful && trusted {
				r.trust(object)
			}
			return nil
		case !errors.Is(err, ErrChanged):
			r.distrust(object)
			return fmt.Errorf("failed to mark tuples of %s applied: %w", object, err)
		}
	}
	r.distrust(object)
	return fmt.Errorf("failed to settle tuples of %s: the document changed %d times meanwhile", object, maxRounds)
}

// deadOf says whether there are dead engines among the writers, and names those of them whose writes can no longer take effect.
func (r *Reconciler) deadOf(writers []string) (some bool, past []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for _, w := range writers {
		if w == r.self {
			continue
		}
		if !r.isDead(w) {
			delete(r.dead, w)
			continue
		}
		some = true
		since, known := r.dead[w]
		if !known {
			since = now
			r.dead[w] = now
		}
		if now.Sub(since) >= doubtAge {
			past = append(past, w)
		}
	}
	return some, past
}

func (r *Reconciler) doubt(o Object) (since time.Time, doubtful bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	since, doubtful = r.doubts[o]
	return since, doubtful
}

func (r *Reconciler) distrust(o Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doubts[o] = r.now()
}

func (r *Reconciler) trust(o Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.doubts, o)
}

// ripe lists the objects whose failed writes can no longer take effect.
func (r *Reconciler) ripe() []Object {
	r.mu.Lock()
	defer r.mu.Unlock()
	var objects []Object
	for o, since := range r.doubts {
		if r.now().Sub(since) >= doubtAge {
			objects = append(objects, o)
		}
	}
	return objects
}

// Sweep settles every unsettled document once, and those with a failed write that can no longer take effect, and
// returns how many it settled. One document that fails does not hold up the others; the errors are joined. When the
// authorization service is unavailable the sweep ends at once.
func (r *Reconciler) Sweep(ctx context.Context) (settled int, err error) {
	var failed []error
	settle := func(o Object) (goOn bool) {
		switch err := r.Settle(ctx, o); {
		case err == nil:
			settled++
		case errors.Is(err, ErrUnavailable), ctx.Err() != nil:
			failed = append(failed, err)
			return false
		default:
			failed = append(failed, err)
		}
		return true
	}
	after := ""
	for {
		page, err := r.documents.Unsettled(ctx, after, sweepPage)
		if err != nil {
			return settled, errors.Join(append(failed, fmt.Errorf("failed to list unsettled documents: %w", err))...)
		}
		for _, d := range page {
			after = d.Object.ID
			if !settle(d.Object) {
				return settled, errors.Join(failed...)
			}
		}
		if len(page) < sweepPage {
			break
		}
	}
	for _, o := range r.ripe() {
		if !settle(o) {
			break
		}
	}
	return settled, errors.Join(failed...)
}

// Restate applies the tuples of every object that list gives, also of those whose documents say that they are applied: for an
// authorization service that may not have them, because its store is new or was restored. list gives objects ascending by
// id, id > after, at most limit. It returns how many it applied.
func (r *Reconciler) Restate(ctx context.Context, list func(ctx context.Context, after string, limit int) ([]Object, error)) (n int, err error) {
	for after := ""; ; {
		page, err := list(ctx, after, sweepPage)
		if err != nil {
			return n, fmt.Errorf("failed to list documents: %w", err)
		}
		for _, o := range page {
			after = o.ID
			if err := r.settle(ctx, o, true); err != nil {
				return n, err
			}
			n++
		}
		if len(page) < sweepPage {
			return n, nil
		}
	}
}

// Run sweeps at once and then after each interval, until ctx ends. Errors are logged; it never gives up.
func (r *Reconciler) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		n, err := r.Sweep(ctx)
		if err != nil && ctx.Err() == nil {
			r.logger.WarnContext(ctx, "tuples are not settled, trying again", "after", r.interval, "error", err)
		}
		if n > 0 {
			r.logger.InfoContext(ctx, "settled tuples", "documents", n)
		}
		timer.Reset(r.interval)
	}
}
