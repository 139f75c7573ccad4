package integrity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

// repairAttempts bounds the races of one conditional update.
const repairAttempts = 32

// RepairOptions are what Repair needs beside the options of Verify. All but DryRun are required.
type RepairOptions struct {
	Options
	Runs     run.Store
	Sessions session.Store
	Owner    string // under which the next run of a freed conversation becomes active: a nonce of no engine
	Now      func() time.Time
	DryRun   bool // change nothing, and say what would be
}

// Change is what Repair did.
type Change struct {
	Code    Code   `json:"code"` // of the finding
	Run     string `json:"run"`
	Session string `json:"session"`
	Detail  string `json:"detail"`
}

// String is one line.
func (c Change) String() string {
	return fmt.Sprintf("%s %s %s: %s", c.Code, c.Run, c.Session, c.Detail)
}

// Repaired is the outcome of Repair.
type Repaired struct {
	Report  Report    `json:"report"` // of before
	Changes []Change  `json:"changes"`
	Refused []Finding `json:"refused"` // what cannot be computed anew: restore a backup, or leave it
}

// Repair verifies, and then mends what documents say otherwise than the logs, which it trusts where they are whole: run
// documents are projected anew, conversations are freed of runs that have ended, and halted runs are given up, or, where their
// logs are whole by now, left to the engines again. It writes by conditional updates and
// the ordinary transitions, so it may run beside engines and may be repeated. It touches neither logs nor blobs.
func Repair(ctx context.Context, o RepairOptions) (Repaired, error) {
	report, err := Verify(ctx, o.Options)
	if err != nil {
		return Repaired{Report: report}, err
	}
	out := Repaired{Report: report, Changes: []Change{}, Refused: []Finding{}}
	v := &verifier{Options: o.Options, counted: true}
	for _, f := range slices.Concat(report.Findings, report.Unsettled) {
		var changes []Change
		var err error
		switch f.Code {
		case Projection:
			changes, err = v.project(ctx, o, f)
		case BindingEnded:
			changes, err = free(ctx, o, f)
		case RunHalted:
			changes, err = v.halted(ctx, o, f)
		}
		if err != nil {
			return out, fmt.Errorf("failed to repair %s: %w", f, err)
		}
		if out.Changes = append(out.Changes, changes...); len(changes) == 0 && !contains(report.Unsettled, f) {
			out.Refused = append(out.Refused, f)
		}
	}
	return out, nil
}

func contains(list []Finding, f Finding) bool {
	for _, g := range list {
		if g == f {
			return true
		}
	}
	return false
}

// project writes the run document anew from its log, and frees the conversation that the run holds.
func (v *verifier) project(ctx context.Context, o RepairOptions, f Finding) ([]Change, error) {
	for range repairAttempts {
		r, err := o.Runs.Run(ctx, f.Run)
		if err != nil {
			return nil, err
		}
		inherited, err := v.inherited(ctx, r)
		if err != nil {
			return nil, err
		}
		l, err := v.readLog(ctx, r, inherited, false)
		if err != nil || l.finding != nil || !l.whole || l.terminal.Data == nil {
			return nil, err
		}
		want := r
		if err := l.projection.Into(&want); err != nil {
			return nil, err
		}
		l.leave(&want)
		differ, err := differences(r, want)
		if err != nil || len(differ) == 0 {
			return nil, err
		}
		done := []Change{{Code: Projection, Run: r.ID, Session: r.SessionID, Detail: "projected anew: " + strings.Join(differ, ", ")}}
		if o.DryRun {
			return done, nil
		}
		want.Rev = r.Rev + 1
		switch err := o.Runs.UpdateRun(ctx, want); {
		case err == nil:
			freed, err := free(ctx, o, Finding{Code: BindingEnded, Run: r.ID, Session: r.SessionID})
			return append(done, freed...), err
		case errors.Is(err, run.ErrRevision), errors.Is(err, run.ErrUnknownOutcome):
		default:
			return nil, err
		}
	}
	return nil, fmt.Errorf("failed to update run %s: %w after %d attempts", f.Run, run.ErrRevision, repairAttempts)
}

// halted lets a conversation go of a halted run, which ends without its log; or takes the halt back where the log is whole.
func (v *verifier) halted(ctx context.Context, o RepairOptions, f Finding) ([]Change, error) {
	for range repairAttempts {
		r, err := o.Runs.Run(ctx, f.Run)
		if err != nil || r.Halted == nil || r.Status.Ended() {
			return nil, err
		}
		inherited, err := v.inherited(ctx, r)
		if err != nil {
			return nil, err
		}
		l, err := v.readLog(ctx, r, inherited, false)
		if err != nil {
			return nil, err
		}
		done := Change{Code: RunHalted, Run: r.ID, Session: r.SessionID, Detail: "its log is whole: the engines go on with it"}
		if l.finding == nil && l.whole {
			r.Halted = nil
		} else {
			done.Detail = "given up: it is FAILED, and its log stays as it is"
			if _, err := run.GiveUp(&r, l.last, o.Now()); err != nil {
				return nil, err
			}
		}
		if o.DryRun {
			return []Change{done}, nil
		}
		r.Rev++
		switch err := o.Runs.UpdateRun(ctx, r); {
		case err == nil && r.Halted == nil:
			return []Change{done}, nil
		case err == nil:
			freed, err := free(ctx, o, Finding{Code: BindingEnded, Run: r.ID, Session: r.SessionID})
			return append([]Change{done}, freed...), err
		case errors.Is(err, run.ErrRevision), errors.Is(err, run.ErrUnknownOutcome):
		default:
			return nil, err
		}
	}
	return nil, fmt.Errorf("failed to update run %s: %w after %d attempts", f.Run, run.ErrRevision, repairAttempts)
}

var errNotEnded = errors.New("integrity: the run has not ended")

// free lets the conversation go of a run whose log and document have ended; the next of its queue becomes active, and is
// taken over by an engine.
func free(ctx context.Context, o RepairOptions, f Finding) ([]Change, error) {
	var next string
	change := func(b session.Binding, op session.Op) (session.Binding, error) {
		if b.Active == nil || b.Active.Run != f.Run {
			return b, session.ErrUnchanged
		}
		r, err := o.Runs.Run(ctx, f.Run)
		if err != nil {
			return b, err
		}
		chunks, err := o.Source.Chunks(ctx, f.Run, max(0, r.LastSequence-event.MaxChunkEvents), 1000)
		if err != nil && !errors.Is(err, ErrDamaged) {
			return b, err
		}
		givenUp := r.Status.Ended() && r.Halted != nil
		if !givenUp && (!r.Status.Ended() || len(chunks) == 0 || !chunks[len(chunks)-1].Terminal) {
			return b, errNotEnded
		}
		var n session.Binding
		if givenUp {
			n, err = session.GiveUp(b, f.Run, o.Owner, op)
		} else {
			n, err = session.Finish(b, session.Lease{Run: f.Run, Gen: b.Active.Gen}, o.Owner, op)
		}
		if next = ""; err == nil && n.Active != nil {
			next = n.Active.Run
		}
		return n, err
	}
	b, err := o.Sessions.Session(ctx, f.Session)
	if err == nil && o.DryRun {
		_, err = change(b, session.Op{ID: "op_dry", Now: o.Now()})
	} else if err == nil {
		_, err = session.Mutate(ctx, o.Sessions, f.Session, o.Now, change)
	}
	switch {
	case errors.Is(err, session.ErrUnchanged), errors.Is(err, errNotEnded), errors.Is(err, session.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	detail := "freed"
	if next != "" {
		detail += "; " + next + " is next"
	}
	return []Change{{Code: BindingEnded, Run: f.Run, Session: f.Session, Detail: detail}}, nil
}
