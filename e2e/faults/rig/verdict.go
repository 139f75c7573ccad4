package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/harness-engine/harness-engine/e2e/faults/judge"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/run"
)

const verifyTimeout = 10 * time.Minute

// judge compares everybody's evidence. settled says that everything came to rest; otherwise only what has ended is judged.
func (r *Rig) judge(ctx context.Context, settled bool) (Report, error) {
	r.mu.Lock()
	v := verdict{rig: r, settled: settled, Report: Report{Findings: append(judge.Findings(nil), r.notes...), Kinds: r.kinds, Statuses: map[string]int{}}}
	r.mu.Unlock()
	for _, n := range v.Kinds {
		v.Points += n
	}
	v.Connections = int(r.connections.Load())
	before, err := r.read(ctx)
	if err != nil {
		return v.Report, err
	}
	logs := map[string][]judge.Seen{}
	if settled {
		if logs, err = r.readLogs(ctx, before); err != nil {
			return v.Report, err
		}
		if r.o.Verify {
			r.verify(ctx, &v.Findings, "while the engines run", 5*r.o.Plan.Options.Lease)
		}
	}
	for _, p := range r.replicas {
		if err := p.halt(); err != nil {
			v.add(judge.Other, "", "engine of replica %d: %s", p.n, lastLine(err.Error()))
		}
	}
	if settled && r.o.Verify {
		r.verify(ctx, &v.Findings, "on the stopped store", 0)
	}
	after, err := r.read(ctx)
	if err != nil {
		return v.Report, err
	}
	if settled && len(after.runs) != len(before.runs) {
		v.add(judge.Other, "", "%d runs became %d while the engines ended", len(before.runs), len(after.runs))
	}
	v.runs(after, logs, r.records(&v.Findings))
	v.clients(logs)
	r.scanLogs(&v.Findings)
	return v.Report, nil
}

// verdict is a judgement that is being made.
type verdict struct {
	Report
	rig       *Rig
	settled   bool
	stored    map[string]bool               // runs that are there
	bySession map[string][]judge.SessionRun // their logs by the API
}

func (v *verdict) add(class judge.Class, run, format string, args ...any) {
	v.Findings = append(v.Findings, judge.Finding{Class: class, Run: run, Text: fmt.Sprintf(format, args...)})
}

// runs judges what the store says of each run by the workers' records.
func (v *verdict) runs(store evidence, logs map[string][]judge.Seen, records map[string][]judge.Record) {
	v.stored, v.bySession = map[string]bool{}, map[string][]judge.SessionRun{}
	recordsOf := map[string][]judge.Record{} // by session
	var asked []judge.Stored
	for _, doc := range store.runs {
		if doc.Status == run.StatusAdmitting || doc.Status == run.StatusRejected {
			if len(store.chunks[doc.ID]) > 0 {
				v.add(judge.Other, doc.ID, "has a log, and is %s", doc.Status)
			}
			continue
		}
		v.stored[doc.ID] = true
		s := judge.Stored{Run: doc.ID, Text: doc.Input.Text}
		if doc.Continues != nil {
			s.Continues = doc.Continues.Run
		}
		asked = append(asked, s)
		recordsOf[doc.SessionID] = append(recordsOf[doc.SessionID], records[doc.ID]...)
		if !v.settled && !doc.Status.Ended() {
			continue
		}
		v.run(doc, store.chunks[doc.ID], records[doc.ID], logs)
	}
	for run, recs := range records {
		if !v.stored[run] {
			v.add(judge.Lost, run, "was given to worker %s, and is not there", recs[0].Instance)
		}
	}
	for _, recs := range recordsOf {
		v.Findings = append(v.Findings, judge.CheckEffects(recs)...)
	}
	v.Findings = append(v.Findings, judge.CheckOnce(asked, keyOf)...)
}

func (v *verdict) run(doc run.Run, chunks []event.Chunk, records []judge.Record, logs map[string][]judge.Seen) {
	events, found := judge.CheckLog(judge.Document{Run: doc.ID, Status: string(doc.Status), Last: doc.LastSequence}, chunks)
	v.Findings = append(v.Findings, found...)
	ending, found := judge.CheckRecords(doc.ID, events, records)
	v.Findings = append(v.Findings, found...)
	v.rig.explain(&v.Findings, doc, ending, len(records) > 0)
	if log, ok := logs[doc.ID]; ok {
		if len(log) != len(events) {
			v.add(judge.Lost, doc.ID, "has %d events by the API, %d in the store", len(log), len(events))
		}
		v.bySession[doc.SessionID] = append(v.bySession[doc.SessionID], judge.SessionRun{Ord: doc.Ord, Run: doc.ID, Log: log})
	}
	v.Runs++
	v.Events += len(events)
	v.Statuses[string(doc.Status)]++
	for _, e := range events {
		if e.Type() == event.TypeRunRecovered {
			v.Fences++
		}
	}
	if ending.Admitted {
		v.Admitted++
	}
}

// clients judges what each client was told and shown.
func (v *verdict) clients(logs map[string][]judge.Seen) {
	for _, t := range v.rig.talks {
		t.mu.Lock()
		for _, a := range t.asks {
			v.Findings = append(v.Findings, judge.CheckAsk(*a, func(run string) bool { return v.stored[run] })...)
		}
		if v.settled {
			for _, w := range t.views {
				v.Findings = append(v.Findings, judge.CheckView(w.view, logs[w.run])...)
			}
			if t.whole != nil {
				v.Findings = append(v.Findings, judge.CheckSession(t.whole.view, v.bySession[t.session])...)
			}
		}
		t.mu.Unlock()
	}
}

// key is what begins each message of a plan's conversations.
var key = regexp.MustCompile(`k\d+-\d+[ab]`)

func keyOf(text string) string { return key.FindString(text) }

// expected are the codes of run.error that a script or a fault of the model asks for, with or without a fault.
var expected = map[string]bool{"as_asked": true, "": true}

// explain finds endings that no fault accounts for: a run whose worker nobody harmed has no reason to lose it.
func (r *Rig) explain(f *judge.Findings, doc run.Run, e judge.Ending, begun bool) {
	if expected[e.Code] && !e.Admitted || doc.EndedAt == nil {
		return
	}
	what := e.Code
	if what == "" {
		what = string(doc.Status)
	}
	harmed := r.harmed(doc.SessionID, doc.CreatedAt, *doc.EndedAt)
	switch {
	case strings.HasPrefix(e.Code, "model_") && !e.Admitted: // the provider's stream was cut too often
	case harmed && e.Admitted:
	case e.Admitted && !begun && e.Code == "": // cancelled before it began
	default:
		*f = append(*f, judge.Finding{Class: judge.Other, Run: doc.ID, Text: fmt.Sprintf(
			"of session %s ended with %s, %d events unlogged, though nothing met its worker", doc.SessionID, what, e.Unlogged)})
	}
}

// verify asks the engine's own judge.
func (r *Rig) verify(ctx context.Context, f *judge.Findings, when string, pause time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, r.o.Binaries.Engine, "admin", "verify", "--quiet", "--pause", pause.String(), "--data", r.data).CombinedOutput()
	r.journal.write("admin verify", string(out), when)
	if err != nil {
		*f = append(*f, judge.Finding{Class: judge.Other, Text: fmt.Sprintf("admin verify %s: %s: %.2000s", when, err, out)})
	}
}

// alarms are words in an engine's log that no fault accounts for.
var alarms = regexp.MustCompile(`(?i)panic:|integrity:|DATA RACE|fatal error:|corrupt`)

// scanLogs looks for alarms in what the engines printed.
func (r *Rig) scanLogs(f *judge.Findings) {
	for _, p := range r.replicas {
		raw, err := os.ReadFile(p.log.Name())
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(raw)) {
			if alarms.MatchString(line) {
				*f = append(*f, judge.Finding{Class: judge.Other, Text: fmt.Sprintf("engine of replica %d says: %.400s", p.n, strings.TrimSpace(line))})
			}
		}
	}
}
