package resolvers

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/graph/model"
)

// maxEventsPage is the most events that one page takes.
const maxEventsPage = 256

// Events reads the log as it is now.
func (r runs) Events(ctx context.Context, obj *model.Run, after int64, logEpoch *string, first int64) (*model.RunEventPage, error) {
	size, err := checkFirst(first, maxEventsPage)
	if err != nil {
		return nil, err
	}
	if err := checkSequence("after", after); err != nil {
		return nil, err
	}
	if err := r.sameEpoch(ctx, obj.ID, logEpoch); err != nil {
		return nil, err
	}
	page := &model.RunEventPage{Events: []model.RunEvent{}, Through: after}
	for {
		// One more than fits says whether there is more. A read may bring less than there is, but never nothing.
		chunks, err := spend(ctx, chunkBytes, func() ([]event.Chunk, error) {
			return r.Root.Events.Read(ctx, obj.ID, page.Through, size-len(page.Events)+1)
		})
		if err != nil {
			return nil, fmt.Errorf("failed to read events of run %s after %d: %w", obj.ID, page.Through, err)
		}
		if len(chunks) == 0 {
			return page, nil
		}
		for _, c := range chunks {
			if err := take(page, c, size); err != nil {
				return nil, fmt.Errorf("failed to show events %d to %d of run %s: %w", c.First, c.Last, obj.ID, err)
			}
			if page.HasMore {
				return page, nil
			}
		}
	}
}

// take puts a chunk's events behind those of the page, as far as they fit.
func take(page *model.RunEventPage, c event.Chunk, size int) error {
	if err := c.Verify(); err != nil {
		return err
	}
	events, err := c.Events()
	if err != nil {
		return err
	}
	for _, e := range events {
		if e.Sequence <= page.Through {
			continue
		}
		if page.HasMore = len(page.Events) == size; page.HasMore {
			return nil
		}
		if e.Sequence != page.Through+1 {
			return fmt.Errorf("%d follows %d", e.Sequence, page.Through)
		}
		shown, err := eventModel(e)
		if err != nil {
			return err
		}
		page.Events, page.Through = append(page.Events, shown), e.Sequence
	}
	return nil
}

// checkSequence checks a cursor of a run's log.
func checkSequence(path string, after int64) error {
	if after < 0 || after > math.MaxInt32 {
		return problem.Field(path, "must be from 0 to %d", math.MaxInt32)
	}
	return nil
}

// eventModel shows a canonical event.
func eventModel(e event.Event) (model.RunEvent, error) {
	ns := e.Namespace
	if ns == nil {
		ns = []string{}
	}
	id, seq, at, typ := e.RunID, e.Sequence, e.Time, string(e.Type())
	switch d := e.Data.(type) {
	case event.RunStarted:
		return model.RunStartedEvent{
			RunID: id, Sequence: seq, Time: at, Namespace: ns, Type: typ, HarnessID: d.Harness, AdapterVersion: d.AdapterVersion,
			AgentVersion: d.AgentVersion, SandboxGeneration: optional(d.SandboxGeneration),
			Isolation: optional(string(d.Isolation)), Continues: optional(d.Continues),
		}, nil
	case event.RunRecovered:
		return model.RunRecoveredEvent{RunID: id, Sequence: seq, Time: at, Namespace: ns, Type: typ, Generation: d.Generation}, nil
	case event.TextStarted:
		return model.TextStartedEvent{RunID: id, Sequence: seq, Time: at, Namespace: ns, Type: typ, MessageID: d.MessageID, Role: d.Role}, nil
	case event.TextDelta:
		return model.TextDeltaEvent{RunID: id, Sequence: seq, Time: at, Namespace: ns, Type: typ, MessageID: d.MessageID, Delta: d.Delta}, nil
	case event.TextFinished:
		return model.TextFinishedEvent{RunID: id, Sequence: seq, Time: at, Namespace: ns, Type: typ, MessageID: d.MessageID}, nil
	case event.ReasoningStarted:
		return model.ReasoningStartedEvent{RunID: id, Sequence: seq, Time: at, Namespace: ns, Type: typ, MessageID: d.MessageID}, nil
	case event.ReasoningDelta:
		return model.ReasoningDeltaEvent{RunID: id, Sequence: seq, Time: at, Namespace: ns, Type: typ, MessageID: d.MessageID, Delta: d.Delta}, nil
	case event.ReasoningFinished:
		return model.ReasoningFinishedEvent{RunID: id, Sequence: seq, Time: at, Namespace: ns, Type: typ, MessageID: d.MessageID}, nil
	case event.ToolStarted:
		return model.ToolStartedEvent{
			RunID: id, Sequence: seq, Time: at, Namespace: ns, Type: typ, ToolCallID: d.ToolCallID, Name: d.Name,
			Kind: optional(d.Kind), Title: optional(d.Title), Arguments: d.Arguments, ParentMessageID: optional(d.ParentMessageID),
		}, nil
	case event.ToolArgumentsDelta:
		return model.ToolArgumentsDeltaEvent{RunID: id, Sequence: seq, Time: at, Namespace: ns, Type: typ, ToolCallID: d.ToolCallID, Delta: d.Delta}, nil
	case event.ToolFinished:
		return model.ToolFinishedEvent{
			RunID: id, Sequence: seq, Time: at, Namespace: ns, Type: typ, ToolCallID: d.ToolCallID, Result: d.Result,
			Truncated: d.Truncated, ResultRef: optional(d.ResultRef),
		}, nil
	case event.ToolError:
		return model.ToolErrorEvent{
			RunID: id, Sequence: seq, Time: at, Namespace: ns, Type: typ, ToolCallID: d.ToolCallID, Code: d.Code,
			Message: d.Message, Retryable: d.Retryable,
		}, nil
	case event.InterruptRequested:
		return model.InterruptRequestedEvent{
			RunID: id, Sequence: seq, Time: at, Namespace: ns, Type: typ, InterruptID: d.InterruptID, Kind: interruptKinds[d.Kind],
			Prompt: optional(d.Prompt), Fields: fieldModels(d.Fields), Calls: callModels(d.Calls), Revision: d.Revision, Deadline: d.Deadline,
		}, nil
	case event.NamespaceEntered:
		return model.NamespaceEnteredEvent{
			RunID: id, Sequence: seq, Time: at, Namespace: ns, Type: typ, ChildID: d.ID, Name: d.Name, ParentToolCallID: d.ParentToolCallID,
		}, nil
	case event.NamespaceExited:
		return model.NamespaceExitedEvent{RunID: id, Sequence: seq, Time: at, Namespace: ns, Type: typ, ChildID: d.ID, Outcome: d.Outcome}, nil
	case event.PlanUpdated:
		entries := make([]model.PlanEntry, len(d.Entries))
		for i, p := range d.Entries {
			entries[i] = model.PlanEntry{Content: p.Content, Status: p.Status, Priority: optional(p.Priority)}
		}
		return model.PlanUpdatedEvent{RunID: id, Sequence: seq, Time: at, Namespace: ns, Type: typ, Entries: entries}, nil
	case event.Warning:
		var details json.RawMessage
		if len(d.Details) > 0 {
			raw, err := json.Marshal(d.Details)
			if err != nil {
				return nil, fmt.Errorf("failed to encode details of event %d of run %s: %w", seq, id, err)
			}
			details = raw
		}
		return model.WarningEvent{RunID: id, Sequence: seq, Time: at, Namespace: ns, Type: typ, Code: d.Code, Message: d.Message, Details: details}, nil
	case event.UsageUpdated:
		return model.UsageUpdatedEvent{RunID: id, Sequence: seq, Time: at, Namespace: ns, Type: typ, Usage: usageModel(d)}, nil
	case event.RunFinished:
		return model.RunFinishedEvent{
			RunID: id, Sequence: seq, Time: at, Namespace: ns, Type: typ, Outcome: d.Outcome, StopReason: d.StopReason, Thread: threadModel(d.Thread),
		}, nil
	case event.RunInterrupted:
		return model.RunInterruptedEvent{
			RunID: id, Sequence: seq, Time: at, Namespace: ns, Type: typ, InterruptID: d.InterruptID, Reason: d.Reason, Thread: threadModel(d.Thread),
		}, nil
	case event.RunCancelled:
		return model.RunCancelledEvent{
			RunID: id, Sequence: seq, Time: at, Namespace: ns, Type: typ, Reason: string(d.Reason), SideEffects: string(d.SideEffects), Thread: threadModel(d.Thread),
		}, nil
	case event.RunError:
		return model.RunErrorEvent{RunID: id, Sequence: seq, Time: at, Namespace: ns, Type: typ, Error: errorModel(d), Thread: threadModel(d.Thread)}, nil
	}
	return nil, fmt.Errorf("event %d of run %s has type %q, which the schema does not know", seq, id, typ)
}

var interruptKinds = map[event.InterruptKind]model.InterruptKind{
	event.InterruptForm:     model.InterruptKindFormInput,
	event.InterruptApproval: model.InterruptKindToolApproval,
}

func fieldModels(fields []event.FormField) []model.FormField {
	ms := make([]model.FormField, len(fields))
	for i, f := range fields {
		ms[i] = model.FormField{Name: f.Name, Label: optional(f.Label), Kind: f.Kind, Required: f.Required, Choices: append([]string{}, f.Choices...)}
	}
	return ms
}

func callModels(calls []event.ApprovalCall) []model.ApprovalCall {
	ms := make([]model.ApprovalCall, len(calls))
	for i, c := range calls {
		ms[i] = model.ApprovalCall{ToolCallID: c.ToolCallID, Name: c.Name, Arguments: c.Arguments, Allowed: append([]string{}, c.Allowed...), Schema: c.Schema}
	}
	return ms
}

func usageModel(u event.UsageUpdated) model.Usage {
	return model.Usage{
		InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, CachedInputTokens: u.CachedInputTokens,
		ReasoningTokens: u.ReasoningTokens, Cost: u.Cost, Currency: optional(u.Currency), Final: u.Final,
	}
}

func threadModel(t event.ThreadState) model.ThreadState {
	return model.ThreadState{Durability: model.ThreadDurability(t.Durability), Revision: optional(t.Revision)}
}

func errorModel(e event.RunError) model.RunError {
	return model.RunError{
		Code: e.Code, Message: e.Message, Category: string(e.Category), Retryable: e.Retryable,
		RetryAfterMs: optional(e.RetryAfterMs), SideEffects: string(e.SideEffects),
	}
}
