package integrity_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/integrity"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/engine/thread"
	"github.com/harness-engine/harness-engine/store/files"
	"github.com/harness-engine/harness-engine/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	quiet = slog.New(slog.DiscardHandler)
	when  = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
)

// Identifiers of the world.
const (
	done    = "run_1done"    // finished, three chunks, made the head of sesDone
	asked   = "run_2asked"   // interrupted with an open tool; waits in sesAsked
	parted  = "run_3parted"  // interrupted with an open tool; went on as resumed
	resumed = "run_4resumed" // finished
	live    = "run_5live"    // at work in sesLive
	queued  = "run_6queued"  // waits behind it
	gone    = "run_7gone"    // finished, expired

	sesDone, sesAsked, sesParted, sesLive = "ses_done", "ses_asked", "ses_parted", "ses_live"

	agentID, attachmentID = "agt_1", "att_1"
)

// Events of the world's logs.
var (
	opened = event.TextStarted{MessageID: "m", Role: "assistant"}
	said   = event.TextDelta{MessageID: "m", Delta: "hello"}
	closed = event.TextFinished{MessageID: "m"}
	tool   = event.ToolStarted{ToolCallID: "t", Name: "write", Arguments: json.RawMessage(`{}`)}
	result = event.ToolFinished{ToolCallID: "t"}
	local  = event.ThreadState{Durability: event.DurabilityLocal}
	finish = event.RunFinished{Outcome: "success", StopReason: "end_turn", Thread: local}
)

func begin(continues string) event.RunStarted {
	return event.RunStarted{Harness: "scripted", AdapterVersion: "1", AgentVersion: 1, SandboxGeneration: 1, WorkerInstance: "wrk_1", Isolation: "none", Continues: continues}
}

// world is a data folder with every kind of run, session and content in it.
type world struct {
	t     *testing.T
	dir   string
	store *sqlite.Store
	blobs *files.Store
}

func (w *world) path() string { return filepath.Join(w.dir, "engine.sqlite") }

func open(t *testing.T, dir string) *world {
	t.Helper()
	w := &world{t: t, dir: dir}
	var err error
	if w.store, err = sqlite.Open(t.Context(), sqlite.Options{Path: w.path(), Logger: quiet, ReserveBytes: -1, MinFreeBytes: -1}); err != nil {
		t.Fatal(err)
	}
	if w.blobs, err = files.Open(t.Context(), files.Options{Folder: filepath.Join(dir, "blobs"), Logger: quiet, MinFreeBytes: -1}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) close() { w.must(w.store.Close()); w.must(w.blobs.Close()) }

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// chunk appends a chunk of events.
func (w *world) chunk(runID, sessionID string, first, gen, seq int64, data ...event.Data) event.Chunk {
	w.t.Helper()
	var events []event.Event
	for i, d := range data {
		events = append(events, event.Event{Time: when.Add(time.Duration(first+int64(i)) * time.Second), Data: d})
	}
	c, err := event.NewChunk(event.ChunkHeader{
		RunID: runID, SessionID: sessionID, First: first, Gen: gen, Writer: "eng_1",
		Cursors: map[string]event.Cursor{event.SourceWorker: {Incarnation: "wrk_1", Seq: seq}},
	}, events)
	w.must(err)
	w.must(w.store.Append(w.t.Context(), c))
	return c
}

// project inserts a run's document as its log says it.
func (w *world) project(r run.Run, chunks ...event.Chunk) run.Run {
	w.t.Helper()
	var p run.Projection
	ended := false
	for _, c := range chunks {
		events, err := c.Events()
		w.must(err)
		for _, e := range events {
			p.Add(e)
		}
		r.LastSequence, ended = c.Last, c.Terminal
	}
	if ended {
		w.must(p.Into(&r))
	}
	w.must(w.store.InsertRun(w.t.Context(), r))
	return r
}

func document(runID, sessionID string, ord int64, status run.Status) run.Run {
	return run.Run{ID: runID, Rev: 1, Status: status, Environment: "dev", Subject: "alice", SessionID: sessionID, Epoch: 1, Ord: ord,
		AgentID: agentID, AgentVersion: 1, Harness: "scripted", Input: run.Input{Text: "hi"}, CreatedAt: when}
}

func binding(sessionID string, nextOrd int64) session.Binding {
	return session.Binding{ID: sessionID, Rev: 1, Key: session.Key{Environment: "dev", Subject: "alice", AgentID: agentID, ConversationID: sessionID},
		AgentVersion: 1, Harness: "scripted", Epoch: 1, LeaseGen: 3, SandboxGen: 1, NextOrd: nextOrd, LastOp: "op_1", CreatedAt: when, UpdatedAt: when}
}

func interrupt(runID string) event.InterruptRequested {
	return event.InterruptRequested{InterruptID: id.OfInterrupt(runID), Kind: event.InterruptApproval, Revision: 1,
		Calls: []event.ApprovalCall{{ToolCallID: "t", Name: "write", Allowed: []string{"approve"}}}}
}

// populate fills an empty data folder.
func populate(t *testing.T, dir string) {
	t.Helper()
	w := open(t, dir)
	defer w.close()
	ctx := t.Context()

	c := []event.Chunk{
		w.chunk(done, sesDone, 1, 1, 0, begin("")),
		w.chunk(done, sesDone, 2, 1, 4, opened, said, closed),
		w.chunk(done, sesDone, 5, 3, 4, event.RunRecovered{Generation: 3}),
		w.chunk(done, sesDone, 6, 3, 5, finish),
	}
	w.project(document(done, sesDone, 1, run.StatusRunning), c...)
	b := binding(sesDone, 2)
	sum := sha256.Sum256([]byte("state"))
	head, err := thread.Threads{Blobs: w.blobs}.Save(ctx, sesDone, 1, done, session.Head{}, harness.State{
		Codec: "tar", Hash: hex.EncodeToString(sum[:]), Size: 5, Body: io.NopCloser(bytes.NewReader([]byte("state"))),
	})
	w.must(err)
	raw, err := event.Encode(event.Event{Time: when, Data: finish})
	w.must(err)
	head.Terminal = json.RawMessage(`{"events":[` + string(raw) + `],"cursor":{"incarnation":"wrk_1","seq":5}}`)
	b.Head = head
	w.must(w.store.InsertSession(ctx, b))

	c = []event.Chunk{
		w.chunk(asked, sesAsked, 1, 1, 0, begin("")),
		w.chunk(asked, sesAsked, 2, 1, 3, tool, interrupt(asked), event.RunInterrupted{InterruptID: id.OfInterrupt(asked), Reason: "approval", Thread: local}),
	}
	r := w.project(document(asked, sesAsked, 1, run.StatusRunning), c...)
	b = binding(sesAsked, 2)
	b.Pending = &session.Pending{Interrupt: id.OfInterrupt(asked), Run: asked, Revision: 1, Request: r.Interrupt.Request}
	w.must(w.store.InsertSession(ctx, b))

	c = []event.Chunk{
		w.chunk(parted, sesParted, 1, 1, 0, begin("")),
		w.chunk(parted, sesParted, 2, 1, 3, tool, interrupt(parted), event.RunInterrupted{InterruptID: id.OfInterrupt(parted), Reason: "approval", Thread: local}),
	}
	r = document(parted, sesParted, 1, run.StatusRunning)
	r.Interrupt = &run.Interrupt{Settled: session.Resumed, ResumedBy: resumed}
	w.project(r, c...)
	c = []event.Chunk{w.chunk(resumed, sesParted, 1, 2, 0, begin(parted)), w.chunk(resumed, sesParted, 2, 2, 2, result, finish)}
	r = document(resumed, sesParted, 2, run.StatusRunning)
	r.Continues = &run.Continuation{Run: parted, Interrupt: id.OfInterrupt(parted), Revision: 1}
	w.project(r, c...)
	b = binding(sesParted, 3)
	b.Decided = &session.Decided{Interrupt: id.OfInterrupt(parted), Revision: 1, How: session.Resumed, Digest: "d", Run: resumed}
	w.must(w.store.InsertSession(ctx, b))

	started := when
	r = document(live, sesLive, 1, run.StatusRunning)
	r.StartedAt, r.LastSequence = &started, 1
	w.chunk(live, sesLive, 1, 2, 0, begin(""))
	w.chunk(live, sesLive, 2, 2, 2, opened, said)
	w.must(w.store.InsertRun(ctx, r))
	w.must(w.store.InsertRun(ctx, document(queued, sesLive, 0, run.StatusQueued)))
	r = document(gone, sesLive, 2, run.StatusRunning)
	c = []event.Chunk{w.chunk(gone, sesLive, 1, 1, 0, begin("")), w.chunk(gone, sesLive, 2, 1, 1, finish)}
	r = w.project(r, c...)
	r.Rev, r.ExpiredThrough = 2, 2
	w.must(w.store.UpdateRun(ctx, r))
	if n, err := w.store.Prune(ctx, gone, 10); n != 2 || err != nil {
		t.Fatalf("pruned %d: %v", n, err)
	}
	b = binding(sesLive, 3)
	b.Active = &session.Active{Run: live, Ord: 1, Epoch: 1, Pin: session.Pin{AgentVersion: 1, Harness: "scripted"}, Gen: 2, Owner: "eng_1"}
	b.Queue = []session.Queued{{Run: queued, Pin: b.Active.Pin}}
	w.must(w.store.InsertSession(ctx, b))

	w.must(w.store.InsertAgent(ctx, agent.Agent{ID: agentID, Rev: 1, State: agent.StateActive, Environment: "dev", Owner: "alice", Slug: "a", Version: 1,
		Authz: authz.Outbox{DesiredRev: 1, AppliedRev: 1}, LastOp: "op_1", CreatedAt: when, UpdatedAt: when}))
	w.must(w.store.InsertVersion(ctx, agent.Version{AgentID: agentID, Number: 1, CreatedAt: when}))
	ref, err := w.blobs.Put(ctx, blob.Attachments, bytes.NewReader([]byte("attached")), 100, "")
	w.must(err)
	w.must(w.store.InsertAttachment(ctx, file.Attachment{ID: attachmentID, Environment: "dev", Owner: "alice", Name: "a", MediaType: "text/plain",
		Size: ref.Size, Hash: ref.Hash, CreatedAt: when}))
}

// copyOf copies a data folder that nobody has open.
func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// exec changes the database of a folder that nobody has open.
func execute(t *testing.T, dir string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, "engine.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		r, err := db.Exec(s)
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			t.Fatalf("%s: changed nothing", s)
		}
	}
}

// verify looks at a folder as `admin verify` does.
func verify(ctx context.Context, t *testing.T, dir string) integrity.Report {
	t.Helper()
	s, err := sqlite.OpenReader(ctx, sqlite.Options{Path: filepath.Join(dir, "engine.sqlite"), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	blobs, err := files.NewReader(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	report, err := integrity.Verify(ctx, integrity.Options{Source: s, Blobs: blobs})
	if err != nil {
		t.Fatal(err)
	}
	return report
}
