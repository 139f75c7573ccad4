package integrity

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/engine/thread"
)

// lookAtSession looks at a binding, at the runs that it holds, and at its head.
func (v *verifier) lookAtSession(ctx context.Context, sessionID string, s *seen) error {
	b, err := v.Source.Session(ctx, sessionID)
	switch {
	case errors.Is(err, ErrDamaged):
		s.find(Finding{Code: DocumentDamaged, Session: sessionID, Detail: "the session document cannot be decoded"})
		return nil
	case errors.Is(err, session.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	v.add(&v.report.Sessions, 1)
	if rule := broken(b); rule != "" {
		s.find(Finding{Code: BindingInvalid, Session: b.ID, Detail: rule})
		return nil
	}
	if b.Active != nil {
		if err := v.lookAtActive(ctx, b, s); err != nil {
			return err
		}
	}
	for _, q := range b.Queue {
		r, found, err := v.runOf(ctx, b, q.Run, s)
		if err != nil {
			return err
		}
		if found && r.Status != run.StatusQueued && r.Status != run.StatusAdmitting {
			s.find(Finding{Code: BindingRun, Run: r.ID, Session: b.ID, Detail: fmt.Sprintf("it is queued, and is %s", r.Status)})
		}
	}
	if b.Pending != nil {
		r, found, err := v.runOf(ctx, b, b.Pending.Run, s)
		if err != nil {
			return err
		}
		// The binding waits as soon as the head is committed; the run ends a moment later.
		ending := b.Active != nil && b.Active.Run == b.Pending.Run
		if found && !ending && r.Status != run.StatusInterrupted {
			s.find(Finding{Code: BindingInterrupt, Run: r.ID, Session: b.ID, Detail: fmt.Sprintf("its session waits for a decision on it, and it is %s", r.Status)})
		}
	}
	if err := v.lookAtOrders(ctx, b, s); err != nil {
		return err
	}
	return v.lookAtHead(ctx, b, s)
}

// broken is the invariant that the binding breaks; empty where it breaks none.
func broken(b session.Binding) string {
	if err := b.Check(); err != nil {
		return err.Error()
	}
	return ""
}

// runOf reads a run that the binding names; false where that is a finding already.
func (v *verifier) runOf(ctx context.Context, b session.Binding, runID string, s *seen) (run.Run, bool, error) {
	r, err := v.Source.Run(ctx, runID)
	switch {
	case errors.Is(err, ErrDamaged): // told with the run
		return r, false, nil
	case errors.Is(err, run.ErrNotFound):
		s.find(Finding{Code: BindingRun, Run: runID, Session: b.ID, Detail: "its session holds it, and there is no such run"})
		return r, false, nil
	case err != nil:
		return r, false, err
	case r.SessionID != b.ID:
		s.find(Finding{Code: BindingRun, Run: runID, Session: b.ID, Detail: "it is held by this session, and is one of session " + r.SessionID})
		return r, false, nil
	}
	return r, true, nil
}

func (v *verifier) lookAtActive(ctx context.Context, b session.Binding, s *seen) error {
	r, found, err := v.runOf(ctx, b, b.Active.Run, s)
	if err != nil || !found {
		return err
	}
	f := Finding{Run: r.ID, Session: b.ID}
	switch {
	case r.Status == run.StatusRejected:
		f.Code, f.Detail = BindingRun, "its session runs it, and it was rejected"
	case r.Status.Ended(): // the last step of a run's end, which its owner or the next has still to do
		f.Code, f.Detail, f.Repairable = BindingEnded, fmt.Sprintf("its session is held by it, and it is %s", r.Status), true
		s.unsettle(f)
		return nil
	case r.Ord != 0 && r.Ord != b.Active.Ord:
		f.Code, f.Detail = BindingOrder, fmt.Sprintf("it has order %d, and runs as %d", r.Ord, b.Active.Ord)
	default:
		return nil
	}
	s.find(f)
	return nil
}

// lookAtOrders looks whether the session's runs have orders of their own.
func (v *verifier) lookAtOrders(ctx context.Context, b session.Binding, s *seen) error {
	before := run.Run{}
	for after := int64(0); ; {
		runs, err := v.Source.SessionRuns(ctx, b.ID, 0, after, idPage)
		if errors.Is(err, ErrDamaged) {
			return nil // told with the run
		}
		if err != nil {
			return err
		}
		for _, r := range runs {
			if r.Ord == before.Ord {
				s.find(Finding{Code: BindingOrder, Run: r.ID, Session: b.ID, Detail: fmt.Sprintf("it has order %d, as %s has", r.Ord, before.ID)})
			}
			before, after = r, r.Ord
		}
		if len(runs) < idPage {
			return nil
		}
	}
}

// lookAtHead reads the thread state of the head to its end, which proves it.
func (v *verifier) lookAtHead(ctx context.Context, b session.Binding, s *seen) error {
	h := b.Head
	if h.Rev == 0 {
		return nil
	}
	f := Finding{Run: h.ByRun, Session: b.ID}
	body, size, err := v.Blobs.Open(ctx, thread.SpaceOf(b.ID, b.Epoch), h.Ref)
	if err == nil {
		err = drain(ctx, body)
	}
	switch {
	case errors.Is(err, blob.ErrNotFound):
		f.Code, f.Detail = HeadMissing, fmt.Sprintf("the state of revision %d is not there", h.Rev)
	case errors.Is(err, blob.ErrHash), err == nil && (size != h.Size || h.Ref != h.Hash):
		f.Code, f.Detail = HeadDamaged, fmt.Sprintf("the state of revision %d is damaged", h.Rev)
	case err != nil:
		return err
	}
	if f.Code != "" {
		s.find(f)
		return nil
	}
	return v.compareHead(ctx, b, s)
}

// compareHead looks whether the run that made the head ended as the head says.
func (v *verifier) compareHead(ctx context.Context, b session.Binding, s *seen) error {
	r, found, err := v.runOf(ctx, b, b.Head.ByRun, s)
	if err != nil || !found || !r.Status.Ended() || r.Halted != nil { // one that was given up ended as neither says
		return err
	}
	want, err := run.TerminalOfHead(b.Head.Terminal)
	if err == nil && want != "" && len(r.Terminal) > 0 {
		var got event.Event
		if got, err = event.Decode(r.Terminal); err == nil && got.Type() != want {
			err = fmt.Errorf("the head ends it by %s, its log by %s", want, got.Type())
		}
	}
	if err != nil {
		s.find(Finding{Code: HeadDiffers, Run: r.ID, Session: b.ID, Detail: err.Error()})
	}
	return nil
}

// drain reads to the end.
func drain(ctx context.Context, body io.ReadCloser) error {
	defer func() { _ = body.Close() }()
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if _, err := io.CopyN(io.Discard, body, 1<<20); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// lookAtAgent looks at an agent's outbox and its current version.
func (v *verifier) lookAtAgent(ctx context.Context, agentID string, s *seen) error {
	a, err := v.Source.Agent(ctx, agentID)
	switch {
	case errors.Is(err, ErrDamaged):
		s.find(Finding{Code: DocumentDamaged, Agent: agentID, Detail: "the agent document cannot be decoded"})
		return nil
	case errors.Is(err, agent.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	v.add(&v.report.Agents, 1)
	if a.Authz.Pending() || a.State == agent.StateCreating || a.State == agent.StateDeleting {
		s.unsettle(Finding{Code: OutboxPending, Agent: a.ID, Detail: fmt.Sprintf("it is %s; tuples of revision %d are applied, of %d wanted, and %d engines may be writing", a.State, a.Authz.AppliedRev, a.Authz.DesiredRev, len(a.Authz.Writers))})
	}
	if a.State != agent.StateActive {
		return nil
	}
	_, err = v.Source.Version(ctx, a.ID, a.Version)
	switch {
	case errors.Is(err, agent.ErrNotFound):
		s.find(Finding{Code: AgentVersion, Agent: a.ID, Detail: fmt.Sprintf("its version %d is not there", a.Version)})
	case errors.Is(err, ErrDamaged):
		s.find(Finding{Code: DocumentDamaged, Agent: a.ID, Detail: fmt.Sprintf("its version %d cannot be decoded", a.Version)})
	case err != nil:
		return err
	}
	return nil
}

// lookAtAttachment reads an attachment's content to its end.
func (v *verifier) lookAtAttachment(ctx context.Context, attachmentID string, s *seen) error {
	a, err := v.Source.Attachment(ctx, attachmentID)
	switch {
	case errors.Is(err, ErrDamaged):
		s.find(Finding{Code: DocumentDamaged, Attachment: attachmentID, Detail: "the attachment document cannot be decoded"})
		return nil
	case errors.Is(err, file.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	v.add(&v.report.Attachments, 1)
	body, size, err := v.Blobs.Open(ctx, blob.Attachments, a.Hash)
	if err == nil {
		err = drain(ctx, body)
	}
	switch {
	case errors.Is(err, blob.ErrNotFound):
		s.find(Finding{Code: AttachmentBlob, Attachment: a.ID, Detail: "its content is not there"})
	case errors.Is(err, blob.ErrHash), err == nil && size != a.Size:
		s.find(Finding{Code: AttachmentBlob, Attachment: a.ID, Detail: "its content is damaged"})
	case err != nil:
		return err
	}
	return nil
}
