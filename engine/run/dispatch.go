package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
)

// deadline is how long the turn may still take. It counts from the run's start, also when another engine saw that.
func (x *execution) deadline(ctx context.Context) time.Duration {
	limit := x.c.Limits.MaxRunDuration
	v, err := x.c.Agents.Version(ctx, x.run.AgentID, x.run.AgentVersion)
	if err == nil && v.Blueprint.Limits.MaxRunSeconds > 0 {
		limit = time.Duration(v.Blueprint.Limits.MaxRunSeconds) * time.Second
	}
	if x.run.StartedAt != nil {
		limit -= x.c.Now().Sub(*x.run.StartedAt)
	}
	return max(limit, time.Millisecond)
}

// startTurn starts the turn, or finds that it is started already: the call is repeated on the same incarnation only.
func (x *execution) startTurn(ctx context.Context, rt harness.Runtime, limit time.Duration) error {
	capability, err := x.c.Capabilities.Mint(x.binding(), x.run.ID, x.c.Now().Add(limit))
	if err != nil {
		return fmt.Errorf("failed to mint the capability of run %s: %w", x.run.ID, err)
	}
	t := harness.Turn{RunID: x.run.ID, Text: x.run.Input.Text, Capability: capability, DeadlineMs: limit.Milliseconds(), Head: x.head()}
	if k := x.run.Continues; k != nil {
		t.Resume = &harness.Resume{RunID: k.Run, InterruptID: k.Interrupt, Revision: k.Revision, Decision: k.Decision, Inherit: x.inherit}
	}
	if t.Files = x.attached; t.Files == nil { // another engine has begun the run
		if t.Files, err = x.files(ctx); err != nil {
			return err
		}
	}
	pause := 20 * time.Millisecond
	for attempt := 1; ; attempt++ {
		err := rt.StartTurn(ctx, t)
		if err == nil || !errors.Is(err, harness.ErrUnreachable) || attempt == startRetries {
			return err
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
		pause *= 2
	}
}

// files reads the attachments of the message.
func (x *execution) files(ctx context.Context) ([]harness.File, error) {
	var out []harness.File
	for _, a := range x.run.Input.Attachments {
		body, _, err := x.c.Blobs.Open(ctx, blob.Attachments, a.Hash)
		if err != nil {
			return nil, fmt.Errorf("failed to open attachment %s: %w", a.ID, err)
		}
		data, err := io.ReadAll(io.LimitReader(body, harness.MaxFilesBytes+1))
		_ = body.Close()
		if err != nil {
			return nil, fmt.Errorf("failed to read attachment %s: %w", a.ID, err)
		}
		out = append(out, harness.File{Name: a.Name, MediaType: a.MediaType, Data: data})
	}
	return out, nil
}

// recheck asks again what may have changed while nobody drove the run. It returns the terminal of a refused run. No answer is
// no refusal: it is asked for until Limits.ReconnectFor is over.
func (x *execution) recheck(ctx context.Context) (*event.RunError, error) {
	allowed, err := x.mayUse(ctx)
	for until := x.c.Now().Add(x.c.Limits.ReconnectFor); err != nil && x.c.Now().Before(until); allowed, err = x.mayUse(ctx) {
		x.log.Warn("authorization gave no answer, asking again", "error", err)
		if err := wait(ctx, storePause); err != nil {
			return nil, err
		}
	}
	if err != nil || !allowed {
		e := x.failure(codeNotAllowed, "the agent may not be used any more", event.CategoryAuthorization)
		e.Retryable = err != nil
		return &e, nil //nolint:nilerr // the terminal tells it
	}
	if err := x.c.Harnesses.Ready(ctx, x.run.Harness); err != nil {
		e := x.failure(codeHarness, "the harness is not available any more", event.CategoryUnavailable)
		e.Retryable = true
		return &e, nil //nolint:nilerr // the terminal tells it
	}
	return nil, nil
}

// wait pauses, or returns the cause of ctx's end.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
