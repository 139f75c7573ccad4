package driver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/worker"
)

// Bounds of what a script may ask for; the engine's are in docs/events.md.
const (
	maxCalls  = 32
	maxFields = 32
)

// approvalStep lets calls wait for a person, all together.
type approvalStep struct {
	Prompt string     `json:"prompt,omitempty"`
	Calls  []callStep `json:"calls"`
}

// callStep is a call that runs when it is approved. Without a result or an error it says that it ran.
type callStep struct {
	ID        string          `json:"id,omitempty"` // made when absent
	Name      string          `json:"name"`
	Kind      string          `json:"kind,omitempty"`
	Title     string          `json:"title,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Allowed   []string        `json:"allowed,omitempty"` // absent: all
	Schema    json.RawMessage `json:"schema,omitempty"`
	Ms        int64           `json:"ms,omitempty"` // between the decision and the answer
	Result    *string         `json:"result,omitempty"`
	Error     *toolError      `json:"error,omitempty"`
}

// formStep asks a person for values, which are then told in a message.
type formStep struct {
	Prompt string            `json:"prompt,omitempty"`
	Fields []event.FormField `json:"fields"`
}

var allVerdicts = []string{string(harness.Approve), string(harness.Edit), string(harness.Reject)}

func (a *approvalStep) check() error {
	if len(a.Calls) == 0 || len(a.Calls) > maxCalls {
		return fmt.Errorf("approval.calls: must be 1 to %d", maxCalls)
	}
	ids := map[string]bool{}
	for i, c := range a.Calls {
		field := fmt.Sprintf("approval.calls.%d", i)
		switch {
		case c.Name == "":
			return errors.New(field + ".name: is missing")
		case c.ID != "" && ids[c.ID]:
			return errors.New(field + ".id: is there twice")
		case c.Result != nil && c.Error != nil:
			return errors.New(field + ": must not have both a result and an error")
		case !object(c.Arguments):
			return errors.New(field + ".arguments: must be an object")
		case !object(c.Schema):
			return errors.New(field + ".schema: must be an object")
		}
		ids[c.ID] = true
		for j, w := range c.Allowed {
			if !slices.Contains(allVerdicts, w) || slices.Contains(c.Allowed[:j], w) {
				return errors.New(field + ".allowed: must be some of approve, edit and reject")
			}
		}
		if err := checkMs(field+".ms", c.Ms); err != nil {
			return err
		}
	}
	return nil
}

// object reports whether raw is absent or a JSON object.
func object(raw json.RawMessage) bool {
	return raw == nil || bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{"))
}

func (f *formStep) check() error {
	if len(f.Fields) == 0 || len(f.Fields) > maxFields {
		return fmt.Errorf("form.fields: must be 1 to %d", maxFields)
	}
	names := map[string]bool{}
	for i, field := range f.Fields {
		at := fmt.Sprintf("form.fields.%d", i)
		switch {
		case field.Name == "":
			return errors.New(at + ".name: is missing")
		case names[field.Name]:
			return errors.New(at + ".name: is there twice")
		case !slices.Contains([]string{"string", "number", "boolean", "choice"}, field.Kind):
			return errors.New(at + ".kind: must be string, number, boolean or choice")
		}
		names[field.Name] = true
	}
	return nil
}

// errInterrupt unwinds the player: each list that it leaves puts what it has not played yet into player.rest.
var errInterrupt = errors.New("a person is asked")

// approve starts calls and lets them wait, or runs them at once where the agent's calls need no approval.
func (p *player) approve(a approvalStep) error {
	asked := event.InterruptRequested{Kind: event.InterruptApproval, Prompt: a.Prompt}
	calls := slices.Clone(a.Calls)
	for i := range calls {
		c := &calls[i]
		if c.ID == "" {
			c.ID = p.id("t")
		}
		if len(c.Allowed) == 0 {
			c.Allowed = allVerdicts
		}
		if err := p.yield(event.ToolStarted{ToolCallID: c.ID, Name: c.Name, Kind: c.Kind, Title: c.Title, Arguments: c.Arguments}); err != nil {
			return err
		}
		asked.Calls = append(asked.Calls, event.ApprovalCall{
			ToolCallID: c.ID, Name: c.Name, Arguments: c.Arguments, Allowed: c.Allowed, Schema: c.Schema,
		})
	}
	if p.driver.approval == harness.ApproveNever {
		for _, c := range calls {
			if err := p.run(c, nil); err != nil {
				return err
			}
		}
		return nil
	}
	p.asked, p.waits = asked, waiting{Calls: calls}
	return errInterrupt
}

func (p *player) form(f formStep) error {
	p.asked = event.InterruptRequested{Kind: event.InterruptForm, Prompt: f.Prompt, Fields: f.Fields}
	p.waits = waiting{Form: &f}
	return errInterrupt
}

// interrupt keeps what the script goes on with, and then asks: whoever has seen the question finds the rest.
func (p *player) interrupt() error {
	p.waits.Run, p.waits.Rest = p.runID, p.rest
	if err := p.driver.store.save(p.waits); err != nil {
		return err
	}
	return p.yield(p.asked, event.RunInterrupted{Reason: string(p.asked.Kind)})
}

// run answers a started call; edited are the arguments that a person gave it, or nil.
func (p *player) run(c callStep, edited json.RawMessage) error {
	if err := p.wait(c.Ms); err != nil {
		return err
	}
	if e := c.Error; e != nil {
		return p.yield(event.ToolError{ToolCallID: c.ID, Code: e.Code, Message: e.Message, Retryable: e.Retryable})
	}
	result := c.Name + " ran"
	if c.Result != nil {
		result = *c.Result
	}
	if edited != nil {
		var b bytes.Buffer
		if err := json.Compact(&b, edited); err != nil {
			return mismatch(err)
		}
		result += "\narguments: " + b.String()
	}
	return p.yield(event.ToolFinished{ToolCallID: c.ID, Result: result})
}

func mismatch(cause error) error {
	return &worker.Failure{
		Category: event.CategoryProtocol, Code: "decision_mismatch", Message: "The decision does not answer what was asked.", Cause: cause,
	}
}

// resume goes on with the script that the interrupted run left.
func (p *player) resume(r harness.Resume) error {
	w, err := p.driver.store.load()
	switch {
	case err != nil:
		return err
	case w.Run != r.RunID:
		return worker.InterruptLost(nil)
	}
	verdicts, err := w.verdicts(r.Decision)
	if err != nil {
		return mismatch(err)
	}
	if err := p.driver.store.drop(); err != nil {
		return err
	}
	for i, c := range w.Calls {
		v := verdicts[i]
		if v.Verdict == harness.Reject {
			err = p.yield(event.ToolError{
				ToolCallID: c.ID, Code: worker.CodeRejected, Message: cmp.Or(v.Message, "A person rejected the call."),
			})
		} else {
			err = p.run(c, v.Arguments)
		}
		if err != nil {
			return err
		}
	}
	if w.Form != nil {
		if err := p.text(said{Value: w.Form.told(r.Decision.Form)}); err != nil {
			return err
		}
	}
	return p.play(w.Rest)
}

// verdicts matches a decision with what waits: one verdict for each call, and an allowed one.
func (w waiting) verdicts(d harness.Decision) ([]harness.CallDecision, error) {
	if w.Form != nil != (d.Form != nil) || len(d.Calls) != len(w.Calls) {
		return nil, errors.New("it is of another kind, or has another number of verdicts")
	}
	out := make([]harness.CallDecision, len(w.Calls))
	for i, c := range w.Calls {
		j := slices.IndexFunc(d.Calls, func(v harness.CallDecision) bool { return v.ToolCallID == c.ID })
		if j < 0 || !slices.Contains(c.Allowed, string(d.Calls[j].Verdict)) {
			return nil, fmt.Errorf("call %d has no verdict, or one that is not allowed", i+1)
		}
		out[i] = d.Calls[j]
	}
	return out, nil
}

// told is what a person filled in, a field a line.
func (f formStep) told(raw json.RawMessage) string {
	var values map[string]json.RawMessage
	if json.Unmarshal(raw, &values) != nil {
		values = nil
	}
	var b bytes.Buffer
	for _, field := range f.Fields {
		value, ok := values[field.Name]
		if !ok {
			continue
		}
		var s string
		if json.Unmarshal(value, &s) != nil {
			s = string(value)
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(field.Name + ": " + s)
	}
	if b.Len() == 0 {
		return "Nothing was filled in."
	}
	return b.String()
}
