package run

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/gowebpki/jcs"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/session"
)

// settleLooks bounds how often a decision waits for the interrupted run to settle.
const settleLooks = 3

// Bounds of a decision.
const (
	MaxDecisionBytes = 64 << 10 // of a form's values, or of one call's edited arguments
	MaxReasonBytes   = 4 << 10  // of a rejection
)

// Resume decides a pending interrupt: a new run goes on from it, or, dismissed, nothing does. It answers when the run is
// queued. The same decision gives the same run, also when it comes a thousand times at once; another one is
// INTERRUPT_CONFLICT, as is a decision on an interrupt that does not wait any more. Other refusals: NOT_FOUND,
// BAD_USER_INPUT with the field, SESSION_BUSY while the interrupted run is still settling, HARNESS_*, CAPACITY.
func (c *Coordinator) Resume(ctx context.Context, req ResumeRequest) (ResumeResult, error) {
	runID, ok := id.RunOfInterrupt(req.InterruptID)
	if !ok {
		return ResumeResult{}, problem.NotFoundf("interrupt")
	}
	r, err := c.Runs.Run(ctx, runID)
	if err == nil && r.Interrupt == nil && c.settled(ctx, r.SessionID, runID) {
		r, err = c.Runs.Run(ctx, runID) // whoever has seen the terminal may decide, also before it is projected
	}
	switch {
	case errors.Is(err, ErrNotFound) || err == nil && (r.Interrupt == nil || r.Environment != req.Caller.Environment):
		return ResumeResult{}, problem.NotFoundf("interrupt")
	case err != nil:
		return ResumeResult{}, fmt.Errorf("failed to read interrupted run %s: %w", runID, err)
	}
	if req.Dismiss {
		return c.dismiss(ctx, r, req)
	}
	asked, err := event.DecodeData(event.TypeInterruptRequested, r.Interrupt.Request)
	if err != nil {
		return ResumeResult{}, fmt.Errorf("failed to read interrupt %s: %w", req.InterruptID, err)
	}
	request := asked.(event.InterruptRequested)
	if err := checkDecision(request, req.Decision); err != nil {
		return ResumeResult{}, err
	}
	digest, err := digestOf(req.Decision)
	if err != nil {
		return ResumeResult{}, problem.Field("input.decision", "is not JSON that can be compared").Because(err)
	}
	next := Run{
		ID: id.Keyed(id.Run, c.Secret, "resume", req.InterruptID, fmt.Sprint(req.Revision)), Rev: 1, Status: StatusAdmitting,
		Environment: r.Environment, Subject: r.Subject, SessionID: r.SessionID, AgentID: r.AgentID, RequestDigest: digest,
		IdempotencyKey: req.IdempotencyKey, CreatedAt: c.now(),
		Continues: &Continuation{Run: r.ID, Interrupt: req.InterruptID, Revision: req.Revision, Decision: req.Decision},
	}
	found, err := c.Runs.Run(ctx, next.ID)
	switch {
	case err == nil && found.Status != StatusAdmitting, err == nil && found.RequestDigest != digest:
		return c.resumed(ctx, found, digest)
	case err == nil:
		next = found
	case !errors.Is(err, ErrNotFound):
		return ResumeResult{}, fmt.Errorf("failed to read run %s: %w", next.ID, err)
	default:
		if refused := c.resumable(ctx, r, req); refused != nil {
			// The same decision may have been taken since we looked, here or by another engine.
			found, err := c.Runs.Run(ctx, next.ID)
			if err != nil || found.RequestDigest != digest {
				return ResumeResult{}, refused
			}
			if found.Status != StatusAdmitting {
				return c.resumed(ctx, found, digest)
			}
			next = found
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), admissionTimeout)
	defer cancel()
	switch err := c.insert(ctx, next); {
	case errors.Is(err, ErrExists):
		if next, err = c.Runs.Run(ctx, next.ID); err != nil {
			return ResumeResult{}, fmt.Errorf("failed to read run %s: %w", next.ID, err)
		}
		if next.Status != StatusAdmitting || next.RequestDigest != digest {
			return c.resumed(ctx, next, digest)
		}
	case err != nil:
		return ResumeResult{}, err
	}
	for range settleLooks {
		res, err := c.admitResume(ctx, next)
		if !problem.Is(err, problem.SessionBusy) || !c.settled(ctx, r.SessionID, runID) {
			return res, err
		}
	}
	return c.admitResume(ctx, next)
}

// resumable refuses what can be refused before anything is written.
func (c *Coordinator) resumable(ctx context.Context, r Run, req ResumeRequest) error {
	if err := c.room(); err != nil {
		return err
	}
	b, err := c.Sessions.Session(ctx, r.SessionID)
	if err != nil {
		return fmt.Errorf("failed to read session %s: %w", r.SessionID, err)
	}
	if b.Active != nil && c.settled(ctx, b.ID, b.Active.Run) {
		if b, err = c.Sessions.Session(ctx, r.SessionID); err != nil {
			return fmt.Errorf("failed to read session %s: %w", r.SessionID, err)
		}
	}
	if b.Active != nil && b.Pending != nil { // before the decision is written down: another one may still be taken
		return refusal(busy(b.Active.Run))
	}
	if how := r.Interrupt.SettledIn(b); how != "" {
		return interruptConflict(how)
	}
	if b.Pending.Revision != req.Revision {
		return problem.New(problem.InterruptConflict, "the interrupt is at revision %d", b.Pending.Revision)
	}
	return c.Harnesses.Ready(ctx, r.Harness)
}

// resumed answers a decision whose run exists.
func (c *Coordinator) resumed(ctx context.Context, found Run, digest string) (ResumeResult, error) {
	if found.RequestDigest != digest {
		return ResumeResult{}, interruptConflict(session.Resumed)
	}
	if found.Status == StatusRejected {
		return ResumeResult{}, refusal(*found.Refusal)
	}
	b, err := c.Sessions.Session(ctx, found.SessionID)
	return ResumeResult{Run: &found, Session: b}, err
}

// admitResume takes the decision on the binding and drives the run. It may be called again, and by many at once.
func (c *Coordinator) admitResume(ctx context.Context, r Run) (ResumeResult, error) {
	b, err := c.mutate(ctx, r.SessionID, func(b session.Binding, op session.Op) (session.Binding, error) {
		return session.Resume(b, r.Continues.Interrupt, r.Continues.Revision, r.ID, r.RequestDigest, c.Boot, op)
	})
	var conflict *session.ConflictError
	var other *session.BusyError
	switch {
	case errors.As(err, &conflict):
		e, _ := problem.As(interruptConflict(conflict.How))
		_, err := c.reject(ctx, r, Refusal{Code: string(e.Code), Message: e.Message})
		return ResumeResult{}, err
	case errors.As(err, &other): // nothing is decided yet: ask again
		return ResumeResult{}, refusal(busy(other.Run))
	case err != nil && !errors.Is(err, session.ErrUnchanged):
		return ResumeResult{}, err
	}
	if b.Active == nil || b.Active.Run != r.ID { // decided before, and past already
		return c.resumed(ctx, r, r.RequestDigest)
	}
	queued, err := c.queue(ctx, r, b)
	if b.Active.Owner == c.Boot {
		c.launch(r, b, false)
	}
	if err != nil {
		return ResumeResult{}, err
	}
	c.recordInterrupt(ctx, b.Decided)
	return ResumeResult{Run: &queued, Session: b}, nil
}

// dismiss gives the interrupt up.
func (c *Coordinator) dismiss(ctx context.Context, r Run, req ResumeRequest) (ResumeResult, error) {
	b, err := c.settleInterrupt(context.WithoutCancel(ctx), r.SessionID, req.InterruptID, req.Revision, session.Dismissed)
	var conflict *session.ConflictError
	if errors.As(err, &conflict) {
		return ResumeResult{}, interruptConflict(conflict.How)
	}
	return ResumeResult{Session: b}, err
}

func interruptConflict(how session.Settlement) error {
	messages := map[session.Settlement]string{
		session.Resumed:    "the interrupt was decided already",
		session.Dismissed:  "the interrupt was dismissed",
		session.Expired:    "the interrupt's deadline has passed",
		session.Superseded: "another run of the conversation took the interrupt's place",
		session.Cleared:    "the conversation was cleared",
	}
	m, ok := messages[how]
	if !ok {
		m = "the interrupt does not wait for a decision"
	}
	e := problem.New(problem.InterruptConflict, "%s", m)
	if how != "" {
		e = e.With("settled", string(how))
	}
	return e
}

// digestOf compares decisions by what they say, whatever the order of their keys and calls.
func digestOf(d harness.Decision) (string, error) {
	d.Calls = slices.SortedFunc(slices.Values(d.Calls), func(a, b harness.CallDecision) int {
		return bytes.Compare([]byte(a.ToolCallID), []byte(b.ToolCallID))
	})
	raw, err := json.Marshal(d)
	if err != nil {
		return "", err
	}
	canonical, err := jcs.Transform(raw)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:]), nil
}

// checkDecision refuses a decision that does not answer what was asked, and names the field.
func checkDecision(q event.InterruptRequested, d harness.Decision) error {
	switch {
	case q.Kind == event.InterruptForm && (len(d.Form) == 0 || len(d.Calls) > 0):
		return problem.Field("input.decision", "must answer the form")
	case q.Kind == event.InterruptApproval && (len(d.Calls) == 0 || len(d.Form) > 0):
		return problem.Field("input.decision", "must decide the calls")
	case q.Kind == event.InterruptForm:
		return checkForm(q.Fields, d.Form)
	}
	return checkCalls(q.Calls, d.Calls)
}

func checkForm(fields []event.FormField, raw json.RawMessage) error {
	const path = "input.decision.form"
	if len(raw) > MaxDecisionBytes {
		return problem.Field(path, "is %d bytes, at most %d are allowed", len(raw), MaxDecisionBytes)
	}
	var values map[string]any
	if err := json.Unmarshal(raw, &values); err != nil || values == nil {
		return problem.Field(path, "must be an object")
	}
	known := map[string]bool{}
	for _, f := range fields {
		known[f.Name] = true
		v, given := values[f.Name]
		if !given || v == nil {
			if f.Required {
				return problem.Field(path+"."+f.Name, "is required")
			}
			continue
		}
		if err := checkField(path+"."+f.Name, f, v); err != nil {
			return err
		}
	}
	for name := range values {
		if !known[name] {
			return problem.Field(path, "has the field %q, which is not asked for", name)
		}
	}
	return nil
}

func checkField(path string, f event.FormField, v any) error {
	var ok bool
	switch f.Kind {
	case "number":
		_, ok = v.(float64)
	case "boolean":
		_, ok = v.(bool)
	case "choice":
		s, isText := v.(string)
		if isText && !slices.Contains(f.Choices, s) {
			return problem.Field(path, "is none of the choices")
		}
		ok = isText
	default:
		var s string
		if s, ok = v.(string); ok {
			return checkText(path, s)
		}
	}
	if !ok {
		return problem.Field(path, "must be a %s", f.Kind)
	}
	return nil
}

func checkCalls(asked []event.ApprovalCall, given []harness.CallDecision) error {
	decided := map[string]bool{}
	for i, d := range given {
		path := fmt.Sprintf("input.decision.calls[%d]", i)
		at := slices.IndexFunc(asked, func(a event.ApprovalCall) bool { return a.ToolCallID == d.ToolCallID })
		switch {
		case at < 0:
			return problem.Field(path+".toolCallId", "is not a call that waits")
		case decided[d.ToolCallID]:
			return problem.Field(path+".toolCallId", "is decided twice")
		case !slices.Contains(asked[at].Allowed, string(d.Verdict)):
			return problem.Field(path+".decision", "%s is not possible for this call", d.Verdict)
		}
		decided[d.ToolCallID] = true
		if err := checkVerdict(path+".decision", asked[at], d); err != nil {
			return err
		}
	}
	for _, a := range asked {
		if !decided[a.ToolCallID] {
			return problem.Field("input.decision.calls", "has no decision on call %s", a.ToolCallID)
		}
	}
	return nil
}

func checkVerdict(path string, asked event.ApprovalCall, d harness.CallDecision) error {
	if len(d.Message) > MaxReasonBytes || !utf8.ValidString(d.Message) {
		return problem.Field(path+".reject.message", "must be at most %d bytes of UTF-8", MaxReasonBytes)
	}
	if d.Verdict != harness.Edit {
		return nil
	}
	path += ".edit.arguments"
	if len(d.Arguments) > MaxDecisionBytes {
		return problem.Field(path, "is %d bytes, at most %d are allowed", len(d.Arguments), MaxDecisionBytes)
	}
	var object map[string]any
	if err := json.Unmarshal(d.Arguments, &object); err != nil || object == nil {
		return problem.Field(path, "must be an object")
	}
	return checkArguments(path, asked.Schema, d.Arguments)
}
