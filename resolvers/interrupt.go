package resolvers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/graph/model"
)

// asked is an interrupt, from a run's document or from the binding that it waits in.
type asked struct {
	id, runID string
	revision  int64
	deadline  *time.Time
	request   json.RawMessage // data of the interrupt.requested event
	settled   session.Settlement
}

// interruptModel shows an interrupt by its kind.
func interruptModel(a asked) (model.Interrupt, error) {
	data, err := event.DecodeData(event.TypeInterruptRequested, a.request)
	if err != nil {
		return nil, fmt.Errorf("failed to decode interrupt %s: %w", a.id, err)
	}
	d, ok := data.(event.InterruptRequested)
	if !ok {
		return nil, fmt.Errorf("interrupt %s is %T", a.id, data)
	}
	status := model.InterruptStatusPending
	if a.settled != "" {
		status = model.InterruptStatus(a.settled)
	}
	if d.Kind == event.InterruptForm {
		return &model.FormInterrupt{
			ID: a.id, RunID: a.runID, Revision: a.revision, Status: status, ExpiresAt: a.deadline,
			Prompt: d.Prompt, Fields: fieldModels(d.Fields),
		}, nil
	}
	return &model.ToolApprovalInterrupt{
		ID: a.id, RunID: a.runID, Revision: a.revision, Status: status, ExpiresAt: a.deadline,
		Prompt: optional(d.Prompt), Calls: callModels(d.Calls),
	}, nil
}

// pendingModel shows the interrupt that a conversation waits for; nil where there is none.
func pendingModel(p *session.Pending) (model.Interrupt, error) {
	if p == nil {
		return nil, nil
	}
	return interruptModel(asked{id: p.Interrupt, runID: p.Run, revision: p.Revision, deadline: p.Deadline, request: p.Request})
}

// interruptOf shows the interrupt that a run ended in; nil where it ended in none. What became of it is the binding's to
// say: the run's document may not know yet.
func (r *Root) interruptOf(ctx context.Context, doc run.Run) (model.Interrupt, error) {
	i := doc.Interrupt
	if i == nil {
		return nil, nil
	}
	settled := i.Settled
	if settled == "" {
		b, err := r.loaders(ctx).session.Load(ctx, doc.SessionID)
		if err != nil {
			return nil, fmt.Errorf("failed to read session %s: %w", doc.SessionID, err)
		}
		settled = i.SettledIn(b)
	}
	return interruptModel(asked{id: i.ID, runID: doc.ID, revision: i.Revision, deadline: i.Deadline, request: i.Request, settled: settled})
}

// decisionOf shows what became of a run's interrupt; taken is what was decided, where the run was resumed.
func (r *Root) decisionOf(ctx context.Context, interrupted run.Run, taken *run.Continuation) (*model.Decision, error) {
	shown, err := r.interruptOf(ctx, interrupted)
	if shown == nil || err != nil {
		return nil, err
	}
	d := &model.Decision{Interrupt: shown, Calls: []model.CallDecision{}}
	if taken == nil {
		return d, nil
	}
	d.Form = taken.Decision.Form
	for _, c := range taken.Decision.Calls {
		d.Calls = append(d.Calls, model.CallDecision{
			ToolCallID: c.ToolCallID, Verdict: verdictModels[c.Verdict], Arguments: c.Arguments, Message: optional(c.Message),
		})
	}
	return d, nil
}

// continuationOf shows the decision that a run goes on with; nil where it continues none, or that run is gone.
func (r *Root) continuationOf(ctx context.Context, doc run.Run) (*model.Decision, error) {
	if doc.Continues == nil {
		return nil, nil
	}
	interrupted, err := r.loaders(ctx).run.Load(ctx, doc.Continues.Run)
	if errors.Is(err, run.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("failed to read interrupted run %s: %w", doc.Continues.Run, err)
	}
	return r.decisionOf(ctx, interrupted, doc.Continues)
}

// Interrupt is null unless the run ended in one.
func (r runs) Interrupt(ctx context.Context, obj *model.Run) (model.Interrupt, error) {
	doc, err := r.loaders(ctx).run.Load(ctx, obj.ID)
	if err != nil {
		return nil, fmt.Errorf("failed to read run %s: %w", obj.ID, err)
	}
	return r.interruptOf(ctx, doc)
}

// Decision is null unless the run goes on from an interrupted one.
func (r runs) Decision(ctx context.Context, obj *model.Run) (*model.Decision, error) {
	if obj.ContinuesID == nil {
		return nil, nil
	}
	doc, err := r.loaders(ctx).run.Load(ctx, obj.ID)
	if err != nil {
		return nil, fmt.Errorf("failed to read run %s: %w", obj.ID, err)
	}
	return r.continuationOf(ctx, doc)
}

// Continues is null unless the run goes on from an interrupted one.
func (r runs) Continues(ctx context.Context, obj *model.Run) (*model.Run, error) {
	return r.runEdge(ctx, obj.ContinuesID)
}

// ContinuedBy is null unless a run goes on from this one.
func (r runs) ContinuedBy(ctx context.Context, obj *model.Run) (*model.Run, error) {
	return r.runEdge(ctx, obj.ContinuedByID)
}

// Run is the run that the interrupt ended.
func (i formInterrupts) Run(ctx context.Context, obj *model.FormInterrupt) (*model.Run, error) {
	return i.runByID(ctx, obj.RunID)
}

// Run is the run that the interrupt ended.
func (i approvalInterrupts) Run(ctx context.Context, obj *model.ToolApprovalInterrupt) (*model.Run, error) {
	return i.runByID(ctx, obj.RunID)
}
