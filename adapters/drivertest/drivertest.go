// Package drivertest plays turns on a driver for the tests of its adapter, and judges what it yields as the engine does.
package drivertest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/worker"
)

// Run is what a driver made of a turn.
type Run struct {
	ID     string
	Events []event.Event     // as the engine would log them, without run.started
	Facts  map[string]string // what the driver said last of each

	t         testing.TB
	validator *event.Validator
	onEvent   func(event.Event)
}

// Play runs a turn to its terminal; one without an id is given one. The test fails where the validator refuses an event, or the
// driver returns an error or no terminal. onEvent, which may be nil, is called with each event as the driver yields it.
func Play(ctx context.Context, t testing.TB, d worker.Driver, turn harness.Turn, onEvent func(event.Event)) *Run {
	t.Helper()
	if turn.RunID == "" {
		turn.RunID = id.New(id.Run)
	}
	r := &Run{ID: turn.RunID, Facts: map[string]string{}, t: t, validator: event.NewValidator(event.Bounds{}), onEvent: onEvent}
	started := event.RunStarted{Harness: "under_test", AdapterVersion: "1"}
	if turn.Resume != nil {
		started.Continues = turn.Resume.RunID
		if err := r.validator.Inherit(turn.Resume.Inherit); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.validator.Accept(event.Event{Data: started}); err != nil {
		t.Fatal(err)
	}
	if err := d.Turn(ctx, turn, r); err != nil {
		t.Fatalf("turn %+v: %v", turn, err)
	}
	if !r.validator.Ended() {
		t.Fatalf("turn %+v has no terminal", turn)
	}
	return r
}

// Yield implements worker.Sink.
func (r *Run) Yield(s worker.Step) error {
	for k, v := range s.Facts {
		r.Facts[k] = v
	}
	for _, e := range s.Events {
		out, err := r.validator.Accept(e)
		if err != nil {
			r.t.Errorf("the validator refused %+v: %v", e, err)
			return err
		}
		r.Events = append(r.Events, out...)
		if r.onEvent != nil {
			r.onEvent(e)
		}
	}
	return nil
}

// Resume is the turn that goes on with a decision after this one, which was interrupted.
func (r *Run) Resume(d harness.Decision) harness.Turn {
	return harness.Turn{Resume: &harness.Resume{
		RunID: r.ID, InterruptID: id.OfInterrupt(r.ID), Revision: 1, Decision: d, Inherit: r.validator.Inheritance(),
	}}
}

// Terminal is how the turn ended.
func (r *Run) Terminal() event.Data { return r.Events[len(r.Events)-1].Data }

// Finished checks that it ended well.
func (r *Run) Finished() *Run {
	r.t.Helper()
	if _, ok := r.Terminal().(event.RunFinished); !ok {
		r.t.Fatalf("ended as %+v", r.Terminal())
	}
	return r
}

// Asked checks that it ended with an interrupt, and gives what a person is asked.
func (r *Run) Asked() event.InterruptRequested {
	r.t.Helper()
	asked := Of[event.InterruptRequested](r)
	end, ok := r.Terminal().(event.RunInterrupted)
	if len(asked) != 1 || !ok || end.InterruptID != id.OfInterrupt(r.ID) || asked[0].InterruptID != end.InterruptID {
		r.t.Fatalf("asked %+v, ended as %+v", asked, r.Terminal())
	}
	return asked[0]
}

// Failed checks that it failed with a category and a code.
func (r *Run) Failed(category event.Category, code string) {
	r.t.Helper()
	if e, ok := r.Terminal().(event.RunError); !ok || e.Category != category || e.Code != code {
		r.t.Fatalf("ended as %+v, want %s %s", r.Terminal(), category, code)
	}
}

// Text is what the harness said, all messages together.
func (r *Run) Text() string {
	var b strings.Builder
	for _, d := range Of[event.TextDelta](r) {
		b.WriteString(d.Delta)
	}
	return b.String()
}

// Of gives the events of one type.
func Of[T event.Data](r *Run) []T {
	var out []T
	for _, e := range r.Events {
		if d, ok := e.Data.(T); ok {
			out = append(out, d)
		}
	}
	return out
}

// MoveState copies what makes up the conversation into a fresh folder, which is all that a worker elsewhere gets of it. Call it
// when a turn has ended, before the driver is closed.
func MoveState(t testing.TB, d worker.Driver, state string) (moved string) {
	t.Helper()
	moved = t.TempDir()
	for _, path := range d.(worker.Stateful).StatePaths() {
		from, to := filepath.Join(state, filepath.FromSlash(path)), filepath.Join(moved, filepath.FromSlash(path))
		info, err := os.Stat(from)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
		case info.IsDir():
			err = os.CopyFS(to, os.DirFS(from))
		default:
			var raw []byte
			if raw, err = os.ReadFile(from); err == nil {
				err = os.WriteFile(to, raw, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return moved
}
