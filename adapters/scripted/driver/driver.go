// Package driver is the worker's half of the scripted harness: the player of scripts. Scripts are described in
// docs/scripted.md.
package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
	"unicode"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/worker"
)

// Options configures a Driver.
type Options struct {
	// Exit ends the worker process for the step of that name. Nil means os.Exit.
	Exit func(code int)
}

// Driver implements worker.Driver.
type Driver struct {
	exit    func(code int)
	options options

	approval  harness.ApprovalPolicy
	memory    *memory
	store     store
	workspace string
}

var _ worker.Stateful = (*Driver)(nil)

// New returns a driver that is not open.
func New(o Options) *Driver {
	if o.Exit == nil {
		o.Exit = os.Exit
	}
	return &Driver{exit: o.Exit}
}

// Open implements worker.Driver.
func (d *Driver) Open(_ context.Context, env worker.Environment, c harness.Construction) error {
	var err error
	if d.options, err = parseOptions(c.Options); err != nil {
		return invalidScript("options", err)
	}
	d.approval, d.store, d.workspace = c.Approval, store{dir: env.State}, env.Workspace
	if d.memory, err = openMemory(env.State); err != nil {
		return &worker.Failure{
			Category: event.CategoryPersistence, Code: "state_unreadable",
			Message: "What this conversation remembers cannot be read.", Cause: err,
		}
	}
	return nil
}

// StatePaths implements worker.Stateful.
func (d *Driver) StatePaths() []string { return []string{fileTurns, fileWaiting, fileUnpackable} }

// Close implements worker.Driver.
func (d *Driver) Close(context.Context) error { return nil }

func invalidScript(where string, err error) *worker.Failure {
	return &worker.Failure{
		Category: event.CategoryConfiguration, Code: "script_invalid",
		Message: fmt.Sprintf("The script in the %s is not valid: %v.", where, err), Cause: err,
	}
}

// Turn implements worker.Driver.
func (d *Driver) Turn(ctx context.Context, t harness.Turn, sink worker.Sink) error {
	p := &player{ctx: ctx, sink: sink, driver: d, runID: t.RunID, earlier: d.memory.turns}
	err := d.play(p, t)
	switch {
	case errors.Is(err, errStop):
		err = nil
	case errors.Is(err, errInterrupt):
		err = p.interrupt()
	case err == nil:
		err = p.yield(finished("end_turn"))
	}
	if err == nil {
		_ = p.wait(p.hold)
	}
	return err
}

func (d *Driver) play(p *player, t harness.Turn) error {
	if t.Resume != nil {
		return p.resume(*t.Resume)
	}
	steps, ok, err := parse(t.Text)
	if err != nil {
		return invalidScript("message", err)
	}
	if !ok {
		steps = d.options.Steps
	}
	if len(steps) == 0 {
		steps = []step{{Text: &said{Value: t.Text}}}
	}
	if err := d.store.drop(); err != nil { // what waited is superseded
		return err
	}
	if err := d.memory.add(t.Text); err != nil {
		return &worker.Failure{
			Category: event.CategoryPersistence, Code: "state_unwritable",
			Message: "What was said cannot be remembered.", Cause: err,
		}
	}
	if len(t.Files) > 0 {
		if err := p.text(said{Value: received(t.Files), Chunk: new(maxChunk), EveryMs: new(int64)}); err != nil {
			return err
		}
	}
	return p.play(steps)
}

// player plays one script in one turn.
type player struct {
	ctx     context.Context
	sink    worker.Sink
	driver  *Driver
	runID   string
	earlier []string
	ids     int
	hold    int64 // milliseconds between the terminal and the turn's end

	asked event.InterruptRequested // what a person is asked, where the script stopped
	waits waiting                  // for the answer
	rest  []step                   // what is played after it
}

func (p *player) yield(data ...event.Data) error {
	s := worker.Step{}
	for _, d := range data {
		s.Events = append(s.Events, event.Event{Data: d})
	}
	return p.sink.Yield(s)
}

// id makes an id that no other message or call of the conversation has.
func (p *player) id(kind string) string {
	p.ids++
	return p.runID + "." + kind + strconv.Itoa(p.ids)
}

func (p *player) play(steps []step) error {
	for i, s := range steps {
		if err := p.ctx.Err(); err != nil {
			return context.Cause(p.ctx)
		}
		if err := p.step(s); err != nil {
			if errors.Is(err, errInterrupt) {
				p.rest = append(p.rest, steps[i+1:]...)
			}
			return err
		}
	}
	return nil
}

func (p *player) step(s step) error {
	switch {
	case s.Text != nil:
		return p.text(*s.Text)
	case s.Reasoning != nil:
		return p.reasoning(*s.Reasoning)
	case s.Tool != nil:
		return p.tool(*s.Tool)
	case s.Plan != nil:
		return p.yield(event.PlanUpdated{Entries: *s.Plan})
	case s.Usage != nil:
		u := s.Usage
		return p.yield(event.UsageUpdated{
			InputTokens: u.Input, OutputTokens: u.Output, CachedInputTokens: u.CachedInput, ReasoningTokens: u.Reasoning,
			Cost: u.Cost, Currency: u.Currency, Final: u.Final,
		})
	case s.Warning != nil:
		return p.yield(*s.Warning)
	case s.Facts != nil:
		return p.sink.Yield(worker.Step{Facts: s.Facts})
	case s.DelayMs != nil:
		return p.wait(*s.DelayMs)
	case s.Error != nil:
		e := s.Error
		return p.end(event.RunError{
			Code: e.Code, Message: e.Message, Category: e.Category, Retryable: e.Retryable, RetryAfterMs: e.RetryAfterMs,
		})
	case s.Finish != nil:
		return p.end(finished(*s.Finish))
	case s.Garbage != nil:
		return p.garbage(*s.Garbage)
	case s.Hang != nil:
		<-p.ctx.Done()
		return context.Cause(p.ctx)
	case s.Exit != nil:
		p.driver.exit(*s.Exit)
		return errors.New("the worker process should have ended")
	case s.Recall != nil:
		return p.text(said{Value: recall(p.earlier)})
	case s.Repeat != nil:
		return p.repeat(*s.Repeat)
	case s.Approval != nil:
		return p.approve(*s.Approval)
	case s.Form != nil:
		return p.form(*s.Form)
	case s.SnapshotFail != nil:
		err := os.Symlink("nowhere", filepath.Join(p.driver.store.dir, fileUnpackable))
		if err != nil && !errors.Is(err, os.ErrExist) {
			return unwritable(err)
		}
	case s.HangBeforeEnd != nil:
		p.hold = *s.HangBeforeEnd
	}
	return nil
}

func (p *player) repeat(r repeatStep) error {
	for i := range r.Times {
		if err := p.play(r.Steps); err != nil {
			if left := r.Times - i - 1; errors.Is(err, errInterrupt) && left > 0 {
				p.rest = append(p.rest, step{Repeat: &repeatStep{Times: left, Steps: r.Steps}})
			}
			return err
		}
		if err := p.ctx.Err(); err != nil {
			return context.Cause(p.ctx)
		}
	}
	return nil
}

// end yields a terminal, after which nothing is played.
func (p *player) end(terminal event.Data) error {
	if err := p.yield(terminal); err != nil {
		return err
	}
	return errStop
}

func (p *player) garbage(kind string) error {
	if err := garbage[kind](p.sink); err != nil {
		return err
	}
	return nil // the host took it: the script goes on, and a test will see that it did
}

func (p *player) text(s said) error {
	id := p.id("m")
	if err := p.yield(event.TextStarted{MessageID: id, Role: "assistant"}); err != nil {
		return err
	}
	if err := p.deltas(s, func(part string) event.Data { return event.TextDelta{MessageID: id, Delta: part} }); err != nil {
		return err
	}
	return p.yield(event.TextFinished{MessageID: id})
}

func (p *player) reasoning(s said) error {
	id := p.id("r")
	if err := p.yield(event.ReasoningStarted{MessageID: id}); err != nil {
		return err
	}
	if err := p.deltas(s, func(part string) event.Data { return event.ReasoningDelta{MessageID: id, Delta: part} }); err != nil {
		return err
	}
	return p.yield(event.ReasoningFinished{MessageID: id})
}

// deltas says a text at its pace, or at that of the options.
func (p *player) deltas(s said, delta func(part string) event.Data) error {
	chunk, every := p.driver.options.Chunk, p.driver.options.EveryMs
	if s.Chunk != nil {
		chunk = *s.Chunk
	}
	if s.EveryMs != nil {
		every = *s.EveryMs
	}
	for rest := s.Value; rest != ""; {
		n := firstPart(rest, chunk)
		if err := p.wait(every); err != nil {
			return err
		}
		if n == len(rest) {
			if err := p.until(s.Until); err != nil {
				return err
			}
		}
		if err := p.yield(delta(rest[:n])); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// firstPart is how many bytes of s the next delta takes: a word with the space after it, or a number of characters.
func firstPart(s string, chunk int) int {
	space, chars := false, 0
	for i, r := range s {
		switch {
		case chunk > 0 && chars == chunk:
			return i
		case chunk == 0 && unicode.IsSpace(r):
			space = true
		case chunk == 0 && space:
			return i
		}
		chars++
	}
	return len(s)
}

func (p *player) tool(t toolStep) error {
	if p.driver.approval == harness.ApproveAlways {
		return p.approve(approvalStep{Calls: []callStep{{
			ID: t.ID, Name: t.Name, Kind: t.Kind, Title: t.Title, Arguments: t.Arguments, Ms: t.Ms, Result: t.Result, Error: t.Error,
		}}})
	}
	if t.ID == "" {
		t.ID = p.id("t")
	}
	started := event.ToolStarted{ToolCallID: t.ID, Name: t.Name, Kind: t.Kind, Title: t.Title}
	if !t.Stream {
		started.Arguments = t.Arguments
	}
	if err := p.yield(started); err != nil {
		return err
	}
	if t.Stream {
		err := p.deltas(said{Value: string(t.Arguments)}, func(part string) event.Data {
			return event.ToolArgumentsDelta{ToolCallID: t.ID, Delta: part}
		})
		if err != nil {
			return err
		}
	}
	if err := p.wait(t.Ms); err != nil {
		return err
	}
	if err := p.until(t.Until); err != nil {
		return err
	}
	if e := t.Error; e != nil {
		return p.yield(event.ToolError{ToolCallID: t.ID, Code: e.Code, Message: e.Message, Retryable: e.Retryable})
	}
	return p.yield(event.ToolFinished{ToolCallID: t.ID, Result: *t.Result})
}

// lookMs is how often a script looks for a file that it waits for.
const lookMs = 10

// until waits for the file in the workspace, or returns why the turn is over. No name is nothing to wait for.
func (p *player) until(name string) error {
	for name != "" {
		if _, err := os.Lstat(filepath.Join(p.driver.workspace, name)); err == nil {
			return nil
		}
		if err := p.wait(lookMs); err != nil {
			return err
		}
	}
	return nil
}

// wait waits, or returns why the turn is over.
func (p *player) wait(ms int64) error {
	if ms == 0 {
		return nil
	}
	timer := time.NewTimer(time.Duration(ms) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
}
