package resolvers

import (
	"context"
	"errors"
	"fmt"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/graph/model"
)

const runList = "runs"

// visible says which runs clients can see: not those that admission has not decided about, nor those that it refused.
func visible(s run.Status) bool { return s != run.StatusAdmitting && s != run.StatusRejected }

// Run reads one run.
func (q queries) Run(ctx context.Context, id string) (*model.Run, error) {
	return q.runByID(ctx, id)
}

func (r *Root) runByID(ctx context.Context, id string) (*model.Run, error) {
	return r.loadRun(ctx, id, func(s run.Status) run.Status { return s })
}

// admitted is the status of a run that its session's binding holds: admission has decided, whether or not its document says so
// yet. Who watches the session is told of the binding's change, and of no other.
func admitted(s run.Status) run.Status {
	if s == run.StatusAdmitting {
		return run.StatusQueued
	}
	return s
}

// boundEdge is runEdge for a run that its session's binding holds.
func (r *Root) boundEdge(ctx context.Context, id *string) (*model.Run, error) {
	if id == nil {
		return nil, nil
	}
	found, err := r.loadRun(ctx, *id, admitted)
	if problem.Is(err, problem.NotFound) {
		return nil, nil
	}
	return found, err
}

func (r *Root) loadRun(ctx context.Context, id string, status func(run.Status) run.Status) (*model.Run, error) {
	doc, err := r.loaders(ctx).run.Load(ctx, id)
	doc.Status = status(doc.Status)
	if errors.Is(err, run.ErrNotFound) || (err == nil && !visible(doc.Status)) {
		return nil, problem.NotFoundf("run")
	}
	if err != nil {
		return nil, fmt.Errorf("failed to read run %s: %w", id, err)
	}
	return runModel(doc)
}

// runEdge reads a run that may be absent or gone.
func (r *Root) runEdge(ctx context.Context, id *string) (*model.Run, error) {
	if id == nil {
		return nil, nil
	}
	found, err := r.runByID(ctx, *id)
	if problem.Is(err, problem.NotFound) {
		return nil, nil
	}
	return found, err
}

// Runs pages the viewer's runs and shows those that the viewer may see.
func (q queries) Runs(ctx context.Context, filter *model.RunFilter, first int64, after *string) (*model.RunConnection, error) {
	size, err := checkFirst(first, maxFirst)
	if err != nil {
		return nil, err
	}
	who, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	narrow := run.Filter{Environment: who.Environment, Subject: who.Subject}
	if filter != nil {
		if narrow.SessionID, err = checkOptionalID("filter.sessionId", filter.SessionID); err != nil {
			return nil, err
		}
		if narrow.AgentID, err = checkOptionalID("filter.agentId", filter.AgentID); err != nil {
			return nil, err
		}
		if filter.Status != nil {
			narrow.Status = run.Status(*filter.Status)
		}
	}
	parts, err := decodeCursor(runList, after, 2)
	if err != nil {
		return nil, err
	}
	var start *run.Run
	if parts != nil {
		at, err := decodeTime(parts[0])
		if err != nil {
			return nil, err
		}
		start = &run.Run{CreatedAt: at, ID: parts[1]}
	}
	page, last, more, err := collect(size, start, func(after *run.Run, limit int) ([]run.Run, error) {
		var before run.Position
		if after != nil {
			before = run.Position{CreatedAt: after.CreatedAt, ID: after.ID}
		}
		rs, err := spend(ctx, runBytes, func() ([]run.Run, error) { return q.Root.Runs.Runs(ctx, narrow, before, limit) })
		if err != nil {
			return nil, fmt.Errorf("failed to list runs of %s: %w", who.Subject, err)
		}
		return rs, nil
	}, func(rs []run.Run) ([]run.Run, error) {
		return allowedOnly(ctx, q.Root, authz.CanView, rs, func(r run.Run) authz.Object { return authz.Run(r.ID) })
	})
	if err != nil {
		return nil, err
	}
	cursor := func(r run.Run) string { return encodeCursor(runList, encodeTime(r.CreatedAt), r.ID) }
	conn := q.runConnection(ctx, page, cursor, more, after != nil)
	if more && last != nil {
		conn.PageInfo.EndCursor = optional(cursor(*last))
	}
	return conn, nil
}

// StartRun admits a run. The refusals that a client has to handle are results, the rest are errors.
func (m mutations) StartRun(ctx context.Context, input model.StartRunInput) (model.StartRunResult, error) {
	who, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	conversation, err := checkOptionalName("input.conversationId", input.ConversationID)
	if err != nil {
		return nil, err
	}
	key, err := checkOptionalName("input.idempotencyKey", input.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	attached, err := m.attached(ctx, who, "input.message.attachments", input.Message.Attachments)
	if err != nil {
		return nil, err
	}
	started, err := m.Control.Start(ctx, run.StartRequest{
		Caller: who, AgentID: input.AgentID, ConversationID: conversation, Text: input.Message.Text, Attachments: attached,
		IdempotencyKey: key, Policy: run.BusyPolicy(input.BusyPolicy),
	})
	if err != nil {
		if refused, ok := refusalModel(err).(model.StartRunResult); ok {
			return refused, nil
		}
		return nil, fmt.Errorf("failed to start a run of agent %s: %w", input.AgentID, err)
	}
	shown, err := runModel(started)
	if err != nil {
		return nil, err
	}
	return model.StartRunSuccess{Run: *shown}, nil
}

// CancelRun asks for the end of a run.
func (m mutations) CancelRun(ctx context.Context, runID string) (*model.Run, error) {
	r, err := m.Control.Cancel(ctx, runID)
	if err != nil {
		return nil, fmt.Errorf("failed to cancel run %s: %w", runID, err)
	}
	if !visible(r.Status) {
		return nil, problem.NotFoundf("run")
	}
	return runModel(r)
}

// ActiveRun is null when the viewer may no longer see it.
func (b busySessions) ActiveRun(ctx context.Context, obj *model.SessionBusy) (*model.Run, error) {
	return b.runEdge(ctx, obj.ActiveRunID)
}

// Generation is read off the log: the lease generation of its last chunk.
func (r runs) Generation(ctx context.Context, obj *model.Run) (*int64, error) {
	tail, err := r.Root.Events.Tail(ctx, obj.ID)
	var gone *event.ExpiredError
	if errors.Is(err, event.ErrEmpty) || errors.As(err, &gone) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("failed to read the tail of run %s: %w", obj.ID, err)
	}
	return optional(tail.Gen), nil
}

// LogEpoch is the incarnation of the store that the run is kept in.
func (r runs) LogEpoch(context.Context, *model.Run) (string, error) { return r.Root.LogEpoch, nil }

// Agent is null when the agent is gone.
func (r runs) Agent(ctx context.Context, obj *model.Run) (*model.Agent, error) {
	return r.agentEdge(ctx, obj.AgentID)
}

// Harness is null when it is not registered.
func (r runs) Harness(_ context.Context, obj *model.Run) (*model.Harness, error) {
	return r.harnessEdge(obj.HarnessID), nil
}

// Session is null when the session is gone.
func (r runs) Session(ctx context.Context, obj *model.Run) (*model.Session, error) {
	return r.sessionEdge(ctx, obj.SessionID)
}

// QueuePosition is null unless the run waits in its session.
func (r runs) QueuePosition(ctx context.Context, obj *model.Run) (*int64, error) {
	if obj.Status != model.RunStatusQueued {
		return nil, nil
	}
	b, err := r.loaders(ctx).session.Load(ctx, obj.SessionID)
	if err != nil {
		return nil, fmt.Errorf("failed to read session %s: %w", obj.SessionID, err)
	}
	for i, q := range b.Queue {
		if q.Run == obj.ID {
			return optional(int64(i + 1)), nil
		}
	}
	return nil, nil
}

// runConnection makes a page of runs.
func (r *Root) runConnection(ctx context.Context, page []run.Run, cursor func(run.Run) string, more, previous bool) *model.RunConnection {
	conn := &model.RunConnection{Edges: make([]model.RunEdge, 0, len(page))}
	for _, doc := range page {
		shown, err := runModel(doc)
		if err != nil {
			r.leftOut(ctx, "run", doc.ID, err)
			continue
		}
		conn.Edges = append(conn.Edges, model.RunEdge{Cursor: cursor(doc), Node: *shown})
	}
	conn.PageInfo = connectionInfo(conn.Edges, func(e model.RunEdge) string { return e.Cursor }, more, previous)
	return conn
}

// runModel shows a run document and what its terminal event says.
func runModel(r run.Run) (*model.Run, error) {
	m := &model.Run{
		ID: r.ID, Status: model.RunStatus(r.Status), Input: model.RunInput{Text: r.Input.Text, Attachments: attachmentModels(r.Input.Attachments)},
		Output: make([]model.RunOutput, len(r.Output)), Isolation: optional(string(r.Isolation)),
		LastSequence: r.LastSequence, ExpiredThrough: r.ExpiredThrough, AgentID: r.AgentID, AgentVersion: optional(r.AgentVersion),
		HarnessID: optional(r.Harness), SessionID: r.SessionID, CancelReason: optional(string(r.CancelReason)),
		Ord: optional(r.Ord), Epoch: optional(r.Epoch), CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, EndedAt: r.EndedAt,
	}
	if r.Continues != nil {
		m.ContinuesID = &r.Continues.Run
	}
	if r.Interrupt != nil {
		m.ContinuedByID = optional(r.Interrupt.ResumedBy)
	}
	for i, o := range r.Output {
		m.Output[i] = model.RunOutput{ID: o.ID, Text: o.Text}
	}
	if r.Usage != nil {
		m.Usage = optional(usageModel(*r.Usage))
	}
	if len(r.Terminal) == 0 {
		return m, nil
	}
	e, err := event.Decode(r.Terminal)
	if err != nil {
		return nil, fmt.Errorf("failed to decode the terminal event of run %s: %w", r.ID, err)
	}
	switch d := e.Data.(type) {
	case event.RunFinished:
		m.Ending = &model.RunEnding{StopReason: optional(d.StopReason), Thread: threadModel(d.Thread)}
	case event.RunInterrupted:
		m.Ending = &model.RunEnding{Thread: threadModel(d.Thread)}
	case event.RunCancelled:
		m.Ending = &model.RunEnding{CancelReason: optional(string(d.Reason)), SideEffects: optional(string(d.SideEffects)), Thread: threadModel(d.Thread)}
	case event.RunError:
		m.Ending = &model.RunEnding{SideEffects: optional(string(d.SideEffects)), Thread: threadModel(d.Thread)}
		m.Error = optional(errorModel(d))
	}
	return m, nil
}
