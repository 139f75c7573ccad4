package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/id"
)

// Errors that a Sink returns to a driver.
var (
	// ErrTurnOver: the turn has its terminal.
	ErrTurnOver = errors.New("turn is over")
	// ErrInvalidEvent: the driver broke a rule of the canonical stream, which ended the turn.
	ErrInvalidEvent = errors.New("invalid event")
)

// sink is the Sink of one turn: it validates, and writes to the journal. It holds the terminal back until the driver
// has returned, so that whoever reads the terminal finds the worker free for the next turn.
type sink struct {
	ctx       context.Context // of the turn
	journal   *journal
	log       *slog.Logger
	over      chan struct{} // closed when the terminal is known
	interrupt string        // id that an interrupt of this run has

	mu          sync.Mutex
	validator   *event.Validator
	terminal    [][]byte // bodies of the last steps, once the terminal is known
	interrupted bool     // the terminal is run.interrupted
}

// interruptRevision is the revision of every interrupt: what is asked never changes.
const interruptRevision = 1

func newSink(ctx context.Context, j *journal, log *slog.Logger, t harness.Turn) (*sink, error) {
	s := &sink{
		ctx: ctx, journal: j, log: log, over: make(chan struct{}), interrupt: id.OfInterrupt(t.RunID),
		validator: event.NewValidator(event.DefaultBounds()),
	}
	started := event.RunStarted{Harness: "worker"}
	if t.Resume != nil {
		if err := s.validator.Inherit(t.Resume.Inherit); err != nil {
			return nil, bad("resume.inherit", "cannot be open at an interrupt")
		}
		started.Continues = t.Resume.RunID
	}
	// run.started is the engine's; the validator here has to know that it was.
	if _, err := s.validator.Accept(event.Event{Data: started}); err != nil {
		return nil, fmt.Errorf("failed to begin validation: %w", err)
	}
	return s, nil
}

// Yield implements Sink.
func (s *sink) Yield(step Step) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terminal != nil {
		return ErrTurnOver
	}
	var events, last []event.Event
	var invalid error
	for _, e := range step.Events {
		accepted, err := s.accept(e)
		if err != nil {
			invalid = err
			break
		}
		if s.validator.Ended() {
			last = accepted
			break
		}
		events = append(events, accepted...)
	}
	bodies, err := encodeSteps(events, boundedFacts(step.Facts))
	if err == nil && last != nil {
		err = s.conclude(last)
	}
	if err != nil {
		return err
	}
	if len(bodies) == 0 && last == nil && invalid == nil {
		bodies = append(bodies, []byte("}")) // a step that yields nothing keeps its number
	}
	if last != nil {
		s.terminal = append(bodies, s.terminal...)
		return nil
	}
	urgent := slices.ContainsFunc(events, func(e event.Event) bool { return e.Type() == event.TypeInterruptRequested })
	for _, b := range bodies {
		if err := s.journal.append(s.ctx, b, urgent); err != nil {
			return err
		}
	}
	if invalid != nil {
		s.log.Error("driver yielded an invalid event", "error", invalid)
		if err := s.terminate(event.ErrorTerminal(s.validator, event.ThreadState{})); err != nil {
			return err
		}
		return fmt.Errorf("%w: %w", ErrInvalidEvent, invalid)
	}
	return nil
}

func (s *sink) accept(e event.Event) ([]event.Event, error) {
	if e.Data != nil && e.Type().EngineOnly() {
		return nil, &event.InvalidError{Rule: 1, Code: "engine_only", Shape: string(e.Type())}
	}
	if c := s.cancelled(); c != nil {
		if d, is := e.Data.(event.RunCancelled); is {
			d.Reason = c.Reason // who asked knows better than the harness
			e.Data = d
		}
	}
	switch d := e.Data.(type) { // one interrupt at most ends a run, so its id needs no driver
	case event.InterruptRequested:
		d.InterruptID, d.Revision = s.interrupt, interruptRevision
		e.Data = d
	case event.RunInterrupted:
		d.InterruptID = s.interrupt
		e.Data = d
	}
	return s.validator.Accept(e)
}

// cancelled is why the turn was cancelled, or nil.
func (s *sink) cancelled() *Cancelled {
	var c *Cancelled
	if errors.As(context.Cause(s.ctx), &c) {
		return c
	}
	return nil
}

// terminate ends the turn with a terminal of the host's own.
func (s *sink) terminate(e event.Event) error {
	accepted, err := s.validator.Accept(e)
	if err != nil {
		return fmt.Errorf("failed to end turn: %w", err)
	}
	return s.conclude(accepted)
}

// conclude keeps the closings and the terminal for later.
func (s *sink) conclude(events []event.Event) error {
	t := &events[len(events)-1]
	t.Data = withThread(t.Data)
	_, s.interrupted = t.Data.(event.RunInterrupted)
	bodies, err := encodeSteps(events, nil)
	if err != nil {
		return err
	}
	s.terminal = bodies
	close(s.over)
	return nil
}

// withThread states where the thread is kept. A worker keeps it in its state folder, at best: what a driver says
// below that stands, what it says above cannot be true here.
func withThread(d event.Data) event.Data {
	local := func(t event.ThreadState) event.ThreadState {
		if t.Durability == "" || t.Durability == event.DurabilityCommitted {
			t.Durability = event.DurabilityLocal
		}
		t.Revision = 0
		return t
	}
	switch d := d.(type) {
	case event.RunFinished:
		d.Thread = local(d.Thread)
		return d
	case event.RunInterrupted:
		d.Thread = local(d.Thread)
		return d
	case event.RunCancelled:
		d.Thread = local(d.Thread)
		return d
	case event.RunError:
		d.Thread = local(d.Thread)
		return d
	}
	return d
}

// finish is called when the driver has returned, or was given up: it supplies the terminal when there is none.
func (s *sink) finish(failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terminal != nil {
		return
	}
	if failure != nil {
		s.log.Warn("driver returned an error", "error", failure)
	}
	if err := s.terminate(s.missing(failure)); err != nil {
		// A Failure with a broken code, for instance. Nothing of it may be shown.
		s.log.Error("failed to end turn as the driver asked", "error", err)
		if err := s.terminate(internalTerminal); err != nil {
			s.log.Error("failed to end turn", "error", err)
		}
	}
}

var internalTerminal = event.Event{Data: event.RunError{
	Code: "driver_failed", Message: "The harness driver failed.", Category: event.CategoryInternal,
}}

// missing is the terminal of a turn whose driver gave none.
func (s *sink) missing(failure error) event.Event {
	if c := s.cancelled(); c != nil {
		return event.Event{Data: event.RunCancelled{Reason: c.Reason}}
	}
	var f *Failure
	switch {
	case errors.As(failure, &f):
		return event.Event{Data: event.RunError{
			Code: f.Code, Message: f.Message, Category: f.Category, Retryable: f.Retryable, RetryAfterMs: f.RetryAfterMs,
		}}
	case failure != nil:
		return internalTerminal
	}
	return event.MissingTerminal(s.validator, event.CategoryProtocol, event.ThreadState{})
}

// stuck notes that the driver may go on though it was told to stop: what it does is not in the stream.
func (s *sink) stuck() event.Event {
	d := event.RunError{
		Code: "driver_stuck", Message: "The harness did not stop in time.", Category: event.CategoryTimeout,
		SideEffects: event.SideEffectsPossible, Thread: event.ThreadState{Durability: event.DurabilityUncertain},
	}
	if c := s.cancelled(); c != nil {
		return event.Event{Data: event.RunCancelled{Reason: c.Reason, SideEffects: d.SideEffects, Thread: d.Thread}}
	}
	return event.Event{Data: d}
}

// abandon ends the turn of a driver that does not return.
func (s *sink) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terminal == nil {
		if err := s.terminate(s.stuck()); err != nil {
			s.log.Error("failed to end turn", "error", err)
		}
	}
}

// release writes the terminal to the journal.
func (s *sink) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.journal.end(s.terminal...)
}

// encodeSteps encodes events as the bodies of as few steps as their bounds allow. The facts are in the first; with
// facts and without events there is one step.
func encodeSteps(events []event.Event, facts map[string]string) ([][]byte, error) {
	var out [][]byte
	var body []byte
	n := 0
	flush := func() error {
		if n > 0 {
			body = append(body, ']')
		}
		if len(facts) > 0 {
			raw, err := json.Marshal(facts)
			if err != nil {
				return fmt.Errorf("failed to encode facts: %w", err)
			}
			body, facts = append(append(body, `,"facts":`...), raw...), nil
		}
		out = append(out, append(body, '}'))
		body, n = nil, 0
		return nil
	}
	for _, e := range events {
		raw, err := event.Encode(e)
		if err != nil {
			return nil, err
		}
		if n == maxStepEvents || n > 0 && len(body)+len(raw) > maxStepBytes {
			if err := flush(); err != nil {
				return nil, err
			}
		}
		if n == 0 {
			body = append(body, `,"events":[`...)
		} else {
			body = append(body, ',')
		}
		body = append(body, raw...)
		n++
	}
	if n > 0 || len(facts) > 0 {
		if err := flush(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Bounds of a step's facts; what is beyond them is left out.
const (
	maxFacts     = 32
	maxFactKey   = 128
	maxFactValue = 1 << 10
)

func boundedFacts(in map[string]string) map[string]string {
	out := make(map[string]string, min(len(in), maxFacts))
	for _, k := range slices.Sorted(maps.Keys(in)) {
		v := in[k]
		if len(out) < maxFacts && k != "" && len(k) <= maxFactKey && len(v) <= maxFactValue && plain(k) && plain(v) {
			out[k] = v
		}
	}
	return out
}

// plain reports whether s is valid UTF-8 without control characters.
func plain(s string) bool {
	for _, r := range s {
		if r == utf8.RuneError || r < 0x20 || r >= 0x7f && r < 0xa0 {
			return false
		}
	}
	return true
}
