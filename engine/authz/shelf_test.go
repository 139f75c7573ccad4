package authz

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// shelf keeps documents in memory with conditional updates, and tuples, and breaks where it is told to.
type shelf struct {
	mu     sync.Mutex
	docs   map[Object]*shelved
	tuples map[Object][]Tuple
	// fault is asked before ("apply", "mark") and after ("applied", "marked") each effect; an error is what the caller gets.
	fault func(step string, o Object) error
	late  []func() // writes that got no answer and are still under way
	calls int
}

type shelved struct {
	rev     int64
	state   string // CREATING, ACTIVE, DELETING, DELETED
	outbox  Outbox
	settled int
}

// errLate: the write gets no answer now and takes effect later.
var errLate = errors.New("no answer")

func (s *shelf) land() {
	for _, f := range s.late {
		f()
	}
	s.late = nil
}

func newShelf() *shelf {
	return &shelf{docs: map[Object]*shelved{}, tuples: map[Object][]Tuple{}, fault: func(string, Object) error { return nil }}
}

func (d *shelved) document(o Object) Document {
	waits := d.state == "CREATING" || d.state == "DELETING"
	return Document{Object: o, Outbox: d.outbox, Rev: d.rev, Waits: waits}
}

// change is what a service does: one conditional update of state and desire.
func (s *shelf) change(o Object, state string, desired []Tuple) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.docs[o]
	if d == nil {
		d = &shelved{}
		s.docs[o] = d
	}
	d.rev++
	d.state = state
	d.outbox = d.outbox.Desire(desired)
}

func (s *shelf) Unsettled(_ context.Context, after string, limit int) ([]Document, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Document
	for o, d := range s.docs {
		if doc := d.document(o); !doc.Settled() && o.ID > after {
			out = append(out, doc)
		}
	}
	slices.SortFunc(out, func(a, b Document) int { return cmp.Compare(a.Object.ID, b.Object.ID) })
	return out[:min(len(out), limit)], nil
}

func (s *shelf) Document(_ context.Context, o Object) (Document, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.docs[o]
	if !ok {
		return Document{}, false, nil
	}
	return d.document(o), true, nil
}

func (s *shelf) MarkWriting(_ context.Context, doc Document, name string) (Document, error) {
	if err := s.fault("write", doc.Object); err != nil {
		return Document{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.docs[doc.Object]
	if d.rev != doc.Rev {
		return Document{}, fmt.Errorf("revision %d: %w", d.rev, ErrChanged)
	}
	d.rev++
	d.outbox = d.outbox.Writing(name)
	return d.document(doc.Object), nil
}

func (s *shelf) MarkApplied(_ context.Context, doc Document, wrote []string) error {
	if err := s.fault("mark", doc.Object); err != nil {
		return err
	}
	s.mu.Lock()
	d := s.docs[doc.Object]
	if d.rev != doc.Rev {
		s.mu.Unlock()
		return fmt.Errorf("revision %d: %w", d.rev, ErrChanged)
	}
	d.rev++
	d.outbox = d.outbox.Applied(doc.Outbox.DesiredRev).Wrote(wrote...)
	d.state = map[string]string{"CREATING": "ACTIVE", "DELETING": "DELETED"}[d.state]
	if d.state == "" {
		d.state = "ACTIVE"
	}
	d.settled++
	s.mu.Unlock()
	return s.fault("marked", doc.Object)
}

func (s *shelf) Apply(_ context.Context, o Object, desired []Tuple) error {
	err := s.fault("apply", o)
	if errors.Is(err, errLate) {
		desired = slices.Clone(desired)
		s.late = append(s.late, func() { s.tuples[o] = desired })
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.tuples[o] = slices.Clone(desired)
	s.calls++
	s.mu.Unlock()
	return s.fault("applied", o)
}
