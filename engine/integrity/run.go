package integrity

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

// lookAtRun looks at a run's log and at whether its document and its session's agree with it.
func (v *verifier) lookAtRun(ctx context.Context, runID string, s *seen) error {
	r, err := v.Source.Run(ctx, runID)
	switch {
	case errors.Is(err, ErrDamaged):
		s.find(Finding{Code: DocumentDamaged, Run: runID, Detail: "the run document cannot be decoded"})
		return nil
	case errors.Is(err, run.ErrNotFound): // gone since it was listed
		return nil
	case err != nil:
		return err
	}
	v.add(&v.report.Runs, 1)
	inherited, err := v.inherited(ctx, r)
	if err != nil {
		return err
	}
	l, err := v.readLog(ctx, r, inherited, true)
	if err != nil {
		return err
	}
	if l.finding == nil && l.whole {
		v.remember(r.ID, l)
	}
	if r.ExpiredThrough > 0 {
		v.add(&v.report.Expired, 1)
	} else if inherited == nil {
		v.add(&v.report.Partial, 1)
	}
	b, err := v.Source.Session(ctx, r.SessionID)
	held := err == nil
	if err != nil && !errors.Is(err, session.ErrNotFound) && !errors.Is(err, ErrDamaged) {
		return err
	}
	if errors.Is(err, ErrDamaged) {
		return v.compare(s, r, l, nil) // the session is told of as such
	}
	if !held && r.Status != run.StatusAdmitting && r.Status != run.StatusRejected {
		s.find(Finding{Code: SessionMissing, Run: r.ID, Session: r.SessionID, Detail: "its session is not there"})
	}
	if !held {
		return v.compare(s, r, l, nil)
	}
	return v.compare(s, r, l, &b)
}

// compare finds where a run's document does not fit its log, and its session, which is nil where nobody can say.
func (v *verifier) compare(s *seen, r run.Run, l logView, b *session.Binding) error {
	at := func(code Code, format string, args ...any) Finding {
		return Finding{Code: code, Run: r.ID, Session: r.SessionID, Detail: fmt.Sprintf(format, args...)}
	}
	if r.Halted != nil && !r.Status.Ended() {
		f := at(RunHalted, "it is halted, and its log is whole by now")
		if f.Repairable = true; l.finding != nil {
			f.Detail = "it is halted, and keeps its session until it is given up"
		}
		s.find(f)
	}
	if l.finding != nil { // what follows from it is not told, too
		s.find(*l.finding)
		return nil
	}
	active := b != nil && b.Active != nil && b.Active.Run == r.ID
	if b != nil && l.gen > b.LeaseGen {
		s.find(at(GenerationBack, "its log has lease generation %d, its session has given out %d", l.gen, b.LeaseGen))
	}
	ended := r.Status.Ended() && r.Status != run.StatusRejected
	switch {
	case l.last == 0 && r.ExpiredThrough > 0:
		if r.ExpiredThrough < r.LastSequence {
			s.find(at(LogMissing, "events %d to %d are missing", r.ExpiredThrough+1, r.LastSequence))
		}
		return nil
	case l.last == 0 && (ended || r.Status == run.StatusRunning):
		s.find(at(LogMissing, "it is %s and has no events", r.Status))
		return nil
	case l.last > 0 && (r.Status == run.StatusRejected || r.Status == run.StatusAdmitting):
		s.find(at(LogUnexpected, "it is %s and has %d events", r.Status, l.last))
		return nil
	case l.last > 0 && l.last < r.LastSequence:
		s.find(at(LogShort, "its log ends at %d, its document has seen %d", l.last, r.LastSequence))
		return nil
	case ended && l.terminal.Data == nil:
		s.find(at(TerminalMissing, "it is %s, and its log ends at %d without a terminal", r.Status, l.last))
		return nil
	case ended:
		if err := v.compareProjection(s, r, l); err != nil {
			return err
		}
	case l.terminal.Data != nil && (active || r.Status == run.StatusQueued): // settled last, or cancelled while it waited
		s.unsettle(at(Projection, "its log has ended, its document says %s", r.Status))
	case l.terminal.Data != nil:
		f := at(Projection, "its log has ended, its document says %s", r.Status)
		f.Repairable = l.whole
		s.find(f)
	case l.last > 0 && r.Status == run.StatusQueued && active:
		s.unsettle(at(Projection, "its log has begun, its document says %s", r.Status))
	case r.Status == run.StatusQueued || r.Status == run.StatusRunning:
		f := at(RunUnheld, "it is %s, and its session neither runs nor queues it", r.Status)
		switch {
		case b == nil || active || b.Queued(r.ID) >= 0:
		case l.last == 0: // dropped from the queue, and its end is not logged yet
			s.unsettle(f)
		default:
			s.find(f)
		}
	}
	if b != nil && r.Ord >= b.NextOrd {
		s.find(at(BindingOrder, "it has order %d, its session gives %d next", r.Ord, b.NextOrd))
	}
	if b != nil && r.Interrupt != nil {
		compareInterrupt(s, r, *b)
	}
	return nil
}

// compareProjection finds what the document of an ended run says otherwise than its log.
func (v *verifier) compareProjection(s *seen, r run.Run, l logView) error {
	if !l.whole { // what has expired said a part of it
		return nil
	}
	want := r
	if err := l.projection.Into(&want); err != nil {
		return err
	}
	l.leave(&want)
	differ, err := differences(r, want)
	if err != nil || len(differ) == 0 {
		return err
	}
	s.find(Finding{
		Code: Projection, Run: r.ID, Session: r.SessionID, Repairable: true,
		Detail: "its document does not say what its log says: " + strings.Join(differ, ", "),
	})
	return nil
}

// leave writes what the log says that the run left open, where the document says anything of it.
func (l logView) leave(r *run.Run) {
	if r.Interrupt != nil && r.Interrupt.Open != nil && l.left != nil {
		changed := *r.Interrupt
		changed.Open = l.left
		r.Interrupt = &changed
	}
}

// differences are the names of the fields in which two documents differ.
func differences(a, b any) ([]string, error) {
	fields := func(doc any) (map[string]json.RawMessage, error) {
		raw, err := json.Marshal(doc)
		if err != nil {
			return nil, fmt.Errorf("failed to encode a document: %w", err)
		}
		var m map[string]json.RawMessage
		return m, json.Unmarshal(raw, &m)
	}
	x, err := fields(a)
	if err != nil {
		return nil, err
	}
	y, err := fields(b)
	if err != nil {
		return nil, err
	}
	var differ []string
	for name := range maps.Keys(x) {
		if !bytes.Equal(x[name], y[name]) {
			differ = append(differ, name)
		}
	}
	for name := range y {
		if _, both := x[name]; !both {
			differ = append(differ, name)
		}
	}
	slices.Sort(differ)
	return differ, nil
}

// compareInterrupt finds an interrupt that the run shows otherwise than the binding, which decides. The run may be behind by
// the last decision.
func compareInterrupt(s *seen, r run.Run, b session.Binding) {
	name := id.OfInterrupt(r.ID)
	waits := b.Pending != nil && b.Pending.Interrupt == name
	decided := b.Decided != nil && b.Decided.Interrupt == name
	f := Finding{Code: BindingInterrupt, Run: r.ID, Session: b.ID}
	switch {
	case r.Interrupt.Settled == "" && !waits && !decided:
		f.Detail = "its interrupt was not settled, and its session does not wait for it"
	case r.Interrupt.Settled != "" && waits:
		f.Detail = fmt.Sprintf("its interrupt is %s, and its session waits for it", r.Interrupt.Settled)
	case decided && r.Interrupt.Settled != "" && (r.Interrupt.Settled != b.Decided.How || r.Interrupt.ResumedBy != b.Decided.Run):
		f.Detail = fmt.Sprintf("its interrupt is %s, its session says %s", r.Interrupt.Settled, b.Decided.How)
	default:
		return
	}
	s.find(f)
}
