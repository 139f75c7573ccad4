package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/session"
)

// admissionTimeout bounds the steps that must not be abandoned half-way when the caller leaves.
const admissionTimeout = 30 * time.Second

// Start admits a run and answers when it is queued; the run goes on by itself. The same idempotency key and request
// give the same run until 24 hours after its end, also when they come at once; another request under the key is
// IDEMPOTENCY_CONFLICT. Other refusals: BAD_USER_INPUT with the field, NOT_FOUND, HARNESS_*, SESSION_BUSY (with
// activeRunId), CAPACITY (with retryAfter, seconds), CAPABILITY_UNSUPPORTED where the harness cannot take an attachment.
func (c *Coordinator) Start(ctx context.Context, req StartRequest) (Run, error) {
	if req.Policy == "" {
		req.Policy = BusyReject
	}
	if err := req.check(); err != nil {
		return Run{}, err
	}
	r := Run{
		ID: id.New(id.Run), Rev: 1, Status: StatusAdmitting, Environment: req.Caller.Environment, Subject: req.Caller.Subject,
		AgentID: req.AgentID, Input: Input{Text: req.Text, Attachments: req.Attachments}, IdempotencyKey: req.IdempotencyKey, RequestDigest: req.digest(),
		CreatedAt: c.now(),
	}
	if req.IdempotencyKey != "" {
		found, taken, err := c.keyed(ctx, &r)
		if err != nil {
			return Run{}, err
		}
		if taken && found.Status != StatusAdmitting {
			return c.repeated(ctx, found, r)
		}
	}
	if err := c.room(); err != nil {
		return Run{}, err
	}
	key := session.Key{Environment: r.Environment, Subject: r.Subject, AgentID: r.AgentID, ConversationID: req.ConversationID}
	if key.ConversationID == "" {
		key.ConversationID = r.ID
	}
	r.SessionID = c.sessionOf(key)

	pin, err := c.admissible(ctx, r, req.Policy)
	if err != nil {
		return Run{}, err
	}
	// From the first write on, the caller's leaving must not leave half an admission behind.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), admissionTimeout)
	defer cancel()
	switch err := c.insert(ctx, r); {
	case errors.Is(err, ErrExists):
		found, err := c.Runs.Run(ctx, r.ID)
		if err != nil {
			return Run{}, fmt.Errorf("failed to read run %s: %w", r.ID, err)
		}
		if found.Status != StatusAdmitting || found.RequestDigest != r.RequestDigest {
			return c.repeated(ctx, found, r)
		}
		r = found
	case err != nil:
		return Run{}, err
	}
	return c.admit(ctx, r, key, pin, req.Policy)
}

// repeated answers a start whose key is taken.
func (c *Coordinator) repeated(ctx context.Context, found, asked Run) (Run, error) {
	if found.RequestDigest != asked.RequestDigest {
		return Run{}, problem.New(problem.IdempotencyConflict, "the idempotency key was used for another request").With("runId", found.ID)
	}
	if found.Status == StatusRejected {
		return Run{}, refusal(*found.Refusal)
	}
	return found, nil
}

// admissible checks what can refuse a run before anything is written, and returns the version to run: the one that
// the conversation is pinned to, else the agent's current one.
func (c *Coordinator) admissible(ctx context.Context, r Run, policy BusyPolicy) (session.Pin, error) {
	a, err := c.Agents.Agent(ctx, r.AgentID)
	if errors.Is(err, agent.ErrNotFound) || problem.Is(err, problem.NotFound) || (err == nil && (a.State != agent.StateActive || a.Environment != r.Environment)) {
		return session.Pin{}, problem.NotFoundf("agent")
	}
	if err != nil {
		return session.Pin{}, fmt.Errorf("failed to read agent %s: %w", r.AgentID, err)
	}
	pin := session.Pin{AgentVersion: a.Version}
	b, err := c.Sessions.Session(ctx, r.SessionID)
	if err == nil && b.Active != nil && b.Active.Run != r.ID && c.settled(ctx, b.ID, b.Active.Run) {
		b, err = c.Sessions.Session(ctx, r.SessionID)
	}
	switch {
	case err == nil:
		if b.Active != nil && b.Active.Run != r.ID && r.IdempotencyKey == "" && policy == BusyReject {
			return session.Pin{}, refusal(busy(b.Active.Run))
		}
		if b.AgentVersion != 0 {
			pin.AgentVersion, pin.Harness = b.AgentVersion, b.Harness
		}
	case !errors.Is(err, session.ErrNotFound):
		return session.Pin{}, fmt.Errorf("failed to read session %s: %w", r.SessionID, err)
	}
	if pin.Harness == "" {
		if pin, err = c.harnessOf(ctx, r.AgentID, pin); err != nil {
			return pin, err
		}
	}
	if err := c.Harnesses.Ready(ctx, pin.Harness); err != nil {
		return pin, err
	}
	return pin, c.takes(pin.Harness, r.Input.Attachments)
}

// harnessOf completes a pin with the harness of its version.
func (c *Coordinator) harnessOf(ctx context.Context, agentID string, pin session.Pin) (session.Pin, error) {
	v, err := c.Agents.Version(ctx, agentID, pin.AgentVersion)
	if err != nil {
		return pin, fmt.Errorf("failed to read version %d of agent %s: %w", pin.AgentVersion, agentID, err)
	}
	pin.Harness = v.Blueprint.HarnessID()
	return pin, nil
}

// pin is what a run of the conversation runs now.
func (c *Coordinator) pin(ctx context.Context, r Run, b session.Binding) (session.Pin, error) {
	if b.AgentVersion != 0 {
		return session.Pin{AgentVersion: b.AgentVersion, Harness: b.Harness}, nil
	}
	a, err := c.Agents.Agent(ctx, r.AgentID)
	if err != nil {
		return session.Pin{}, fmt.Errorf("failed to read agent %s: %w", r.AgentID, err)
	}
	return c.harnessOf(ctx, r.AgentID, session.Pin{AgentVersion: a.Version})
}

// insert writes the admitting run; an unknown outcome is resolved by the key.
func (c *Coordinator) insert(ctx context.Context, r Run) error {
	err := c.Runs.InsertRun(ctx, r)
	if errors.Is(err, ErrUnknownOutcome) {
		// Whether it was written or not, writing it again says so: a second insert of the same id is ErrExists.
		err = c.Runs.InsertRun(ctx, r)
	}
	if err != nil && !errors.Is(err, ErrExists) {
		return fmt.Errorf("failed to insert run %s: %w", r.ID, err)
	}
	return err
}

// admit takes an ADMITTING run to QUEUED or REJECTED. It may be called again, and by two callers at once.
func (c *Coordinator) admit(ctx context.Context, r Run, key session.Key, pin session.Pin, policy BusyPolicy) (Run, error) {
	if err := c.Sessions.InsertSession(ctx, session.New(r.SessionID, key, session.Op{ID: id.New("op"), Now: c.now()})); err != nil &&
		!errors.Is(err, session.ErrExists) && !errors.Is(err, session.ErrUnknownOutcome) {
		return Run{}, fmt.Errorf("failed to insert session %s: %w", r.SessionID, err)
	}
	var before session.Binding
	b, err := c.mutate(ctx, r.SessionID, func(b session.Binding, op session.Op) (session.Binding, error) {
		before = b
		return session.Admit(b, r.ID, c.Boot, pin, policy, op)
	})
	var other *session.BusyError
	switch {
	case errors.As(err, &other):
		why := busy(other.Run)
		if other.Full {
			why.Message = fmt.Sprintf("%d runs of the conversation wait already", session.MaxQueue)
		}
		return c.reject(ctx, r, why)
	case err != nil && !errors.Is(err, session.ErrUnchanged):
		return Run{}, err
	}
	if before.Pending != nil && b.Pending == nil {
		c.recordInterrupt(ctx, b.Decided)
	}
	if b.Active == nil || b.Active.Run != r.ID {
		return c.admittedToQueue(ctx, r, b, policy)
	}
	queued, err := c.queue(ctx, r, b)
	if b.Active.Owner == c.Boot { // whatever became of queue: the binding is taken, and the execution uses or frees it
		c.launch(r, b, false)
	}
	switch {
	case err != nil:
		return Run{}, err
	case queued.Status == StatusRejected: // by another caller, between our read of the run and our admission
		return Run{}, refusal(*queued.Refusal)
	}
	return queued, nil
}

// admittedToQueue answers for a run that waits. One that is to interrupt the active run asks for that run's end.
func (c *Coordinator) admittedToQueue(ctx context.Context, r Run, b session.Binding, policy BusyPolicy) (Run, error) {
	queued, err := c.enqueued(ctx, r, b)
	if err != nil {
		return Run{}, err
	}
	if queued.Status == StatusRejected {
		_, err := c.unqueue(ctx, r, event.CancelSuperseded)
		return Run{}, errors.Join(refusal(*queued.Refusal), err)
	}
	if policy == BusyInterrupt && b.Active != nil {
		if _, err := c.requestCancel(ctx, b.Active.Run, event.CancelSuperseded); err != nil {
			return Run{}, err
		}
	}
	return queued, nil
}

// queue writes what admission decided into the run document, once.
func (c *Coordinator) queue(ctx context.Context, r Run, b session.Binding) (Run, error) {
	return c.update(ctx, r.ID, func(r *Run) bool {
		if r.Status != StatusAdmitting && (r.Status != StatusQueued || r.Ord != 0) {
			return false
		}
		r.Status, r.Ord, r.Epoch = StatusQueued, b.Active.Ord, b.Active.Epoch
		r.AgentVersion, r.Harness = b.Active.Pin.AgentVersion, b.Active.Pin.Harness
		return true
	})
}

// reject keeps the refusal, so that a repeated key gets the same answer.
func (c *Coordinator) reject(ctx context.Context, r Run, why Refusal) (Run, error) {
	r, err := c.update(ctx, r.ID, func(r *Run) bool {
		if r.Status != StatusAdmitting {
			return false
		}
		now := c.now()
		r.Status, r.Refusal, r.EndedAt = StatusRejected, &why, &now
		return true
	})
	if err != nil {
		return Run{}, err
	}
	if r.Status != StatusRejected { // the other caller of this key was admitted
		return r, nil
	}
	return Run{}, refusal(*r.Refusal)
}

func busy(activeRun string) Refusal {
	return Refusal{Code: string(problem.SessionBusy), Message: "another run of the conversation is active", ActiveRun: activeRun}
}

func refusal(r Refusal) error {
	e := problem.New(problem.Code(r.Code), "%s", r.Message)
	if r.ActiveRun != "" {
		e = e.With("activeRunId", r.ActiveRun)
	}
	return e
}

// now is the time for documents: UTC, milliseconds.
func (c *Coordinator) now() time.Time { return c.Now().UTC().Truncate(time.Millisecond) }
