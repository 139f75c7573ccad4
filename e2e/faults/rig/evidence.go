package rig

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the store's file is read beside the engine

	"github.com/harness-engine/harness-engine/e2e/enginetest"
	"github.com/harness-engine/harness-engine/e2e/faults/judge"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/internal/client"
)

const (
	fileStore     = "engine.sqlite"
	readers       = 4 // logs read through the API at once
	verifyTimeout = 3 * time.Minute
)

// evidence is everything that the store says.
type evidence struct {
	runs   []run.Run
	chunks map[string][]event.Chunk
}

// read reads the store's file beside whoever has it open.
func (r *Rig) read(ctx context.Context) (evidence, error) {
	out := evidence{chunks: map[string][]event.Chunk{}}
	dsn := url.URL{Scheme: "file", Path: filepath.Join(r.data, fileStore), RawQuery: "mode=ro&_pragma=busy_timeout(10000)"}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return out, fmt.Errorf("failed to open the store: %w", err)
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, "SELECT body FROM runs ORDER BY created, id")
	if err != nil {
		return out, fmt.Errorf("failed to read runs: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var body []byte
		var doc run.Run
		if err := rows.Scan(&body); err != nil {
			return out, fmt.Errorf("failed to read runs: %w", err)
		}
		if err := json.Unmarshal(body, &doc); err != nil {
			return out, fmt.Errorf("failed to read runs: %w", err)
		}
		out.runs = append(out.runs, doc)
	}
	if err := rows.Err(); err != nil {
		return out, fmt.Errorf("failed to read runs: %w", err)
	}
	chunks, err := db.QueryContext(ctx, "SELECT run, first, last, session, gen, writer, terminal, cursors, facts, sha256, body FROM chunks ORDER BY run, first")
	if err != nil {
		return out, fmt.Errorf("failed to read chunks: %w", err)
	}
	defer chunks.Close()
	for chunks.Next() {
		var c event.Chunk
		var cursors, facts sql.NullString
		var sum []byte
		if err := chunks.Scan(&c.RunID, &c.First, &c.Last, &c.SessionID, &c.Gen, &c.Writer, &c.Terminal, &cursors, &facts, &sum, &c.Body); err != nil {
			return out, fmt.Errorf("failed to read chunks: %w", err)
		}
		copy(c.SHA256[:], sum)
		for raw, into := range map[*sql.NullString]any{&cursors: &c.Cursors, &facts: &c.Facts} {
			if raw.Valid {
				err = errors.Join(err, json.Unmarshal([]byte(raw.String), into))
			}
		}
		if err != nil {
			return out, fmt.Errorf("failed to read chunk %s/%d: %w", c.RunID, c.First, err)
		}
		out.chunks[c.RunID] = append(out.chunks[c.RunID], c)
	}
	return out, chunks.Err()
}

// records reads what the workers say.
func (r *Rig) records(f *judge.Findings) map[string][]judge.Record {
	out := map[string][]judge.Record{}
	folder := filepath.Join(r.o.Folder, dirRecords)
	entries, err := os.ReadDir(folder)
	if err != nil {
		*f = append(*f, judge.Finding{Class: judge.Other, Text: "failed to read records: " + err.Error()})
		return out
	}
	for _, e := range entries {
		file, err := os.Open(filepath.Join(folder, e.Name()))
		if err == nil {
			var rec judge.Record
			rec, err = judge.ReadRecord(file)
			file.Close()
			if rec.Run != "" {
				out[rec.Run] = append(out[rec.Run], rec)
			}
		}
		if err != nil && e.Name() != "" && !strings.Contains(err.Error(), "no head") {
			*f = append(*f, judge.Finding{Class: judge.Other, Text: "record " + e.Name() + ": " + err.Error()})
		}
	}
	return out
}

// judge compares everybody's evidence. settled says that everything came to rest; otherwise only what has ended is judged.
func (r *Rig) judge(ctx context.Context, settled bool) (Report, error) {
	r.mu.Lock()
	f := append(judge.Findings(nil), r.notes...)
	kinds := r.kinds
	r.mu.Unlock()
	points := 0
	for _, n := range kinds {
		points += n
	}
	report := Report{Points: points, Connections: int(r.connections.Load()), Kinds: kinds, Statuses: map[string]int{}}
	store, err := r.read(ctx)
	if err != nil {
		return report, err
	}
	logs := map[string][]judge.Seen{}
	if settled {
		if logs, err = r.readLogs(ctx, store); err != nil {
			return report, err
		}
	}
	if settled && r.o.Verify {
		r.verify(ctx, &f, "while the engines run", 2*r.o.Plan.Options.Lease)
	}
	for _, p := range r.replicas {
		if err := p.halt(); err != nil {
			f = append(f, judge.Finding{Class: judge.Other, Text: fmt.Sprintf("engine of replica %d: %s", p.n, lastLine(err.Error()))})
		}
	}
	if settled && r.o.Verify {
		r.verify(ctx, &f, "on the stopped store", 0)
	}
	after, err := r.read(ctx)
	if err != nil {
		return report, err
	}
	if settled && len(after.runs) != len(store.runs) {
		f = append(f, judge.Finding{Class: judge.Other, Text: fmt.Sprintf("%d runs became %d while the engines ended", len(store.runs), len(after.runs))})
	}
	records := r.records(&f)
	bySession := map[string][]judge.SessionRun{}
	recordsOf := map[string][]judge.Record{}
	stored := map[string]bool{}
	var asked []judge.Stored
	for _, doc := range after.runs {
		visible := doc.Status != run.StatusAdmitting && doc.Status != run.StatusRejected
		if !visible {
			if len(after.chunks[doc.ID]) > 0 {
				f = append(f, judge.Finding{Class: judge.Other, Run: doc.ID, Text: "has a log, and is " + string(doc.Status)})
			}
			continue
		}
		stored[doc.ID] = true
		s := judge.Stored{Run: doc.ID, Text: doc.Input.Text}
		if doc.Continues != nil {
			s.Continues = doc.Continues.Run
		}
		asked = append(asked, s)
		if !settled && !doc.Status.Ended() {
			continue
		}
		events, found := judge.CheckLog(judge.Document{Run: doc.ID, Status: string(doc.Status), Last: doc.LastSequence}, after.chunks[doc.ID])
		f = append(f, found...)
		ending, found := judge.CheckRecords(doc.ID, events, records[doc.ID])
		f = append(f, found...)
		recordsOf[doc.SessionID] = append(recordsOf[doc.SessionID], records[doc.ID]...)
		r.explain(&f, doc, ending, len(records[doc.ID]) > 0)
		if log, ok := logs[doc.ID]; ok {
			if len(log) != len(events) {
				f = append(f, judge.Finding{Class: judge.Lost, Run: doc.ID, Text: fmt.Sprintf("has %d events by the API, %d in the store", len(log), len(events))})
			}
			bySession[doc.SessionID] = append(bySession[doc.SessionID], judge.SessionRun{Ord: doc.Ord, Run: doc.ID, Log: log})
		}
		report.Runs++
		report.Events += len(events)
		for _, e := range events {
			if e.Type() == event.TypeRunRecovered {
				report.Fences++
			}
		}
		report.Statuses[string(doc.Status)]++
		if ending.Admitted {
			report.Admitted++
		}
	}
	for _, recs := range recordsOf {
		f = append(f, judge.CheckEffects(recs)...)
	}
	f = append(f, judge.CheckOnce(asked, keyOf)...)
	for _, t := range r.talks {
		t.mu.Lock()
		for _, a := range t.asks {
			f = append(f, judge.CheckAsk(*a, func(run string) bool { return stored[run] })...)
		}
		if settled {
			for _, w := range t.views {
				f = append(f, judge.CheckView(w.view, logs[w.run])...)
			}
			if t.whole != nil {
				f = append(f, judge.CheckSession(t.whole.view, bySession[t.session])...)
			}
		}
		t.mu.Unlock()
	}
	r.scanLogs(&f)
	report.Findings = f
	return report, nil
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

// readLogs reads every log through the API, from any replica.
func (r *Rig) readLogs(ctx context.Context, store evidence) (map[string][]judge.Seen, error) {
	owners := map[string]*talk{}
	for _, t := range r.talks {
		owners[fmt.Sprintf("talker-%d", t.n)] = t
	}
	var mu sync.Mutex
	var firstErr error
	logs := map[string][]judge.Seen{}
	queue := make(chan run.Run)
	var group sync.WaitGroup
	for range readers {
		group.Go(func() {
			for doc := range queue {
				log, err := r.readLog(ctx, owners[doc.Subject], doc.ID)
				mu.Lock()
				logs[doc.ID] = log
				if err != nil && firstErr == nil {
					firstErr = err
				}
				mu.Unlock()
			}
		})
	}
	for _, doc := range store.runs {
		if doc.Status != run.StatusAdmitting && doc.Status != run.StatusRejected && owners[doc.Subject] != nil {
			queue <- doc
		}
	}
	close(queue)
	group.Wait()
	return logs, firstErr
}

func (r *Rig) readLog(ctx context.Context, t *talk, id string) ([]judge.Seen, error) {
	at := -1
	for {
		at = t.somewhere(at)
		limited, cancel := context.WithTimeout(ctx, callLimit)
		events, err := t.clients[at].Log(limited, id, 0)
		cancel()
		if err == nil {
			out := make([]judge.Seen, len(events))
			for i, e := range events {
				out[i] = judge.Seen{Sequence: e.Sequence, Print: printOf(e)}
			}
			return out, nil
		}
		if !client.Passing(err) && enginetest.Code(err) != "" || !pause(ctx, retryPause) {
			return nil, fmt.Errorf("failed to read log of run %s: %w", id, err)
		}
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
