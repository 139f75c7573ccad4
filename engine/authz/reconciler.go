package authz

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	// Settled is true when nothing is left to do: the desired tuples are applied and no state waits for it.
	Settled bool
}

// Documents is the store of documents with an outbox, as a Reconciler uses it. It is implemented beside the documents.
type Documents interface {
	// Unsettled lists documents that are not Settled, ascending by object id, id > after, at most limit.
	Unsettled(ctx context.Context, after string, limit int) ([]Document, error)
	// Document reads one document, with the consistency of a deciding read; false when there is none.
	Document(ctx context.Context, object Object) (Document, bool, error)
	// MarkApplied records, by one conditional update on d.Rev, that the tuples of d.Outbox.DesiredRev are applied
	// (Outbox.Applied), and moves the state that waited for it: CREATING to ACTIVE, DELETING to DELETED. It returns
	// ErrChanged (wrapped) when the stored revision is another. An unknown outcome is an error like any other; the next
	// round reads the document again.
	MarkApplied(ctx context.Context, d Document) error
}

// ReconcilerOptions configure a Reconciler. Documents and Tuples are required.
type ReconcilerOptions struct {
	Documents Documents
	Tuples    Tuples
	Interval  time.Duration // pause between sweeps; 0: DefaultInterval
	Logger    *slog.Logger  // nil: slog.Default()
}

// Reconciler brings tuples in line with documents: the document says what should hold, the reconciler makes it so and
// records that in the document. It applies state, not operations, serially per object within this process. It may be
// interrupted at any point: what was begun is finished by a later call. A write that got no answer may take effect
// late, over a newer state; such objects are remembered and applied once more when that can no longer happen.
type Reconciler struct {
	documents Documents
	tuples    Tuples
	interval  time.Duration
	logger    *slog.Logger
	locks     Locks
	now       func() time.Time

	mu     sync.Mutex
	doubts map[Object]time.Time // when the last write failed that may still take effect
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
	return &Reconciler{
		documents: o.Documents,
		tuples:    o.Tuples,
		interval:  o.Interval,
		logger:    o.Logger,
		now:       time.Now,
		doubts:    map[Object]time.Time{},
	}, nil
}

// Settle settles one document; call it right after the write that changed the outbox. When it returns nil the
// document was seen Settled, or is gone. On an error the document stays unsettled and a sweep will try again.
func (r *Reconciler) Settle(ctx context.Context, object Object) error {
	unlock, err := r.locks.Lock(ctx, object)
	if err != nil {
		return fmt.Errorf("failed to settle tuples of %s: %w", object, err)
	}
	defer unlock()
	doubted, doubtful := r.doubt(object)
	begun := r.now()
	applied := int64(-1) // revision of the state that this call applied last
	for range maxRounds {
		d, found, err := r.documents.Document(ctx, object)
		if err != nil {
			return fmt.Errorf("failed to read document of %s: %w", object, err)
		}
		// Another process may have settled a newer state while this one applied an older: the newer state is applied
		// again before this call is content.
		if !found || (d.Settled && (applied == d.Outbox.DesiredRev || (applied < 0 && !doubtful))) {
			if doubtful && begun.Sub(doubted) >= doubtAge {
				r.trust(object)
			}
			return nil
		}
		// The tuples are applied even when the outbox says that they were: what is unsettled by its state alone may
		// come from a crash between applying and marking.
		if err := r.tuples.Apply(ctx, object, d.Outbox.Desired); err != nil {
			r.distrust(object)
			return fmt.Errorf("failed to apply tuples of %s: %w", object, err)
		}
		applied = d.Outbox.DesiredRev
		if d.Settled {
			continue
		}
		if err := r.documents.MarkApplied(ctx, d); err != nil && !errors.Is(err, ErrChanged) {
			r.distrust(object)
			return fmt.Errorf("failed to mark tuples of %s applied: %w", object, err)
		}
	}
	r.distrust(object)
	return fmt.Errorf("failed to settle tuples of %s: the document changed %d times meanwhile", object, maxRounds)
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
			if err := r.restate(ctx, o); err != nil {
				return n, err
			}
			n++
		}
		if len(page) < sweepPage {
			return n, nil
		}
	}
}

func (r *Reconciler) restate(ctx context.Context, o Object) error {
	unlock, err := r.locks.Lock(ctx, o)
	if err != nil {
		return fmt.Errorf("failed to restate tuples of %s: %w", o, err)
	}
	defer unlock()
	d, found, err := r.documents.Document(ctx, o)
	if err != nil {
		return fmt.Errorf("failed to read document of %s: %w", o, err)
	}
	if !found {
		return nil
	}
	if err := r.tuples.Apply(ctx, o, d.Outbox.Desired); err != nil {
		return fmt.Errorf("failed to apply tuples of %s: %w", o, err)
	}
	return nil
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
