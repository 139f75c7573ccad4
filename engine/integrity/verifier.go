package integrity

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
)

const (
	idPage = 500 // identifiers in one listing

	// looks is how often an object is looked at before its finding counts: what an engine is changing meanwhile may look
	// wrong once, and even twice where it is changed again.
	looks = 3
)

// Options of Verify. Source and Blobs are required.
type Options struct {
	Source Source
	Blobs  Blobs
	// Pause is how long to wait before something that looks wrong is looked at again, for engines that are at work: longer
	// than a run's lease, so that what a dead engine left has been taken over. 0: no second look, nobody is at work.
	Pause time.Duration
	// Progress is told now and then what is being looked at and how many of it have been; may be nil.
	Progress func(noun string, done int64)
}

// kind is what an object is.
type kind string

const (
	kindRun        kind = "runs"
	kindLog        kind = "logs"
	kindSession    kind = "sessions"
	kindAgent      kind = "agents"
	kindAttachment kind = "attachments"
)

type object struct {
	kind kind
	id   string
}

// verifier is one verification.
type verifier struct {
	Options
	report  Report
	counted bool // the first look is over: nothing is counted any more
	left    map[string]*event.Inheritance
}

// seen are the findings of one object.
type seen struct {
	findings  []Finding
	unsettled []Finding
}

// Verify looks at everything once, and at what looks wrong again after Options.Pause. Memory is bounded by one run's ids and
// text, a page of its log and maxFindings. An error means that the store could not be read, not that something is wrong.
func Verify(ctx context.Context, o Options) (Report, error) {
	v := &verifier{Options: o, report: Report{Findings: []Finding{}}} // in JSON none is a list, too
	suspects := map[object]seen{}
	for _, walk := range []struct {
		kind kind
		list func(ctx context.Context, after string, limit int) ([]string, error)
	}{
		{kindRun, o.Source.RunIDs}, {kindLog, o.Source.LogIDs}, {kindSession, o.Source.SessionIDs},
		{kindAgent, o.Source.AgentIDs}, {kindAttachment, o.Source.AttachmentIDs},
	} {
		done := int64(0)
		for after := ""; ; {
			ids, err := walk.list(ctx, after, idPage)
			if err != nil {
				return v.report, fmt.Errorf("failed to list %s: %w", walk.kind, err)
			}
			for _, id := range ids {
				after = id
				s, err := v.look(ctx, object{walk.kind, id})
				if err != nil {
					return v.report, err
				}
				if len(s.findings)+len(s.unsettled) > 0 {
					if v.report.Truncated = len(suspects) >= maxFindings; v.report.Truncated {
						continue
					}
					suspects[object{walk.kind, id}] = s
				}
				done++
				if v.Progress != nil && done%1000 == 0 {
					v.Progress(string(walk.kind), done)
				}
			}
			if len(ids) < idPage {
				break
			}
		}
		if v.Progress != nil {
			v.Progress(string(walk.kind), done)
		}
	}
	v.counted = true
	if err := v.confirm(ctx, suspects); err != nil {
		return v.report, err
	}
	for _, o := range slices.SortedFunc(maps.Keys(suspects), func(a, b object) int {
		return cmpStrings(string(a.kind), string(b.kind), a.id, b.id)
	}) {
		v.report.Findings = append(v.report.Findings, suspects[o].findings...)
		v.report.Unsettled = append(v.report.Unsettled, suspects[o].unsettled...)
	}
	if len(v.report.Findings) > maxFindings {
		v.report.Findings, v.report.Truncated = v.report.Findings[:maxFindings], true
	}
	return v.report, nil
}

// cmpStrings compares pairs one after the other.
func cmpStrings(pairs ...string) int {
	for i := 0; i < len(pairs); i += 2 {
		switch {
		case pairs[i] < pairs[i+1]:
			return -1
		case pairs[i] > pairs[i+1]:
			return 1
		}
	}
	return 0
}

// confirm looks again at what looked wrong, and keeps what still does in the same way.
func (v *verifier) confirm(ctx context.Context, suspects map[object]seen) error {
	if v.Pause <= 0 {
		return nil
	}
	for range looks - 1 {
		if len(suspects) == 0 {
			return nil
		}
		timer := time.NewTimer(v.Pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		for o, before := range suspects {
			now, err := v.look(ctx, o)
			if err != nil {
				return err
			}
			now.findings, now.unsettled = both(before.findings, now.findings), both(before.unsettled, now.unsettled)
			if len(now.findings)+len(now.unsettled) == 0 {
				delete(suspects, o)
				continue
			}
			suspects[o] = now
		}
	}
	return nil
}

// both are the findings that two looks agree on.
func both(before, now []Finding) []Finding {
	return slices.DeleteFunc(now, func(f Finding) bool { return !slices.Contains(before, f) })
}

func (v *verifier) look(ctx context.Context, o object) (seen, error) {
	var s seen
	var err error
	switch o.kind {
	case kindRun:
		err = v.lookAtRun(ctx, o.id, &s)
	case kindLog:
		err = v.lookAtLog(ctx, o.id, &s)
	case kindSession:
		err = v.lookAtSession(ctx, o.id, &s)
	case kindAgent:
		err = v.lookAtAgent(ctx, o.id, &s)
	case kindAttachment:
		err = v.lookAtAttachment(ctx, o.id, &s)
	}
	if err != nil {
		err = fmt.Errorf("failed to look at %s %s: %w", o.kind, o.id, err)
	}
	return s, err
}

// add counts in the first look only.
func (v *verifier) add(to *int64, n int64) {
	if !v.counted {
		*to += n
	}
}

func (s *seen) find(f Finding)     { s.findings = append(s.findings, f) }
func (s *seen) unsettle(f Finding) { s.unsettled = append(s.unsettled, f) }

// ErrDamaged: what is stored cannot be decoded. A Source wraps it, so that the rest is looked at all the same; any other error
// of a Source ends the verification.
var ErrDamaged = errors.New("integrity: stored document is damaged")
