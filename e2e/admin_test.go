package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// admin runs an admin command on a data folder and returns what it printed.
func admin(ctx context.Context, t *testing.T, data string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(ctx, programs(t).Engine, append(append([]string{"admin"}, args...), "--data", data)...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("admin %s: %w\n%s%s", strings.Join(args, " "), err, out, complaint.String())
	}
	return string(out), err
}

// wantAdmin is admin that must succeed and print the text.
func wantAdmin(ctx context.Context, t *testing.T, data, text string, args ...string) string {
	t.Helper()
	out, err := admin(ctx, t, data, args...)
	if err != nil || !strings.Contains(out, text) {
		t.Fatalf("admin %v: %q, %v; want %q", args, out, err, text)
	}
	return out
}

// wantClean verifies a data folder.
func wantClean(ctx context.Context, t *testing.T, data string) {
	t.Helper()
	wantAdmin(ctx, t, data, " 0 findings", "verify", "--pause", "8s", "--quiet")
}

// damaged names the tests that damage what an engine keeps.
var damaged = map[string]bool{}

// left verifies what an engine leaves, however it ended: its logs are whole, and its documents say what they say.
func left(t *testing.T, data string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), caseTimeout)
	defer cancel()
	if out, err := admin(ctx, t, data, "verify", "--pause", "0", "--quiet"); err != nil {
		t.Errorf("what the engine left: %v", err)
	} else if strings.Contains(out, "unsettled") {
		t.Logf("what the engine left: %s", out)
	}
}

const expiryQuery = `query($id: ID!, $after: Int!, $epoch: ID) { run(id: $id) {
  status logEpoch expiredThrough lastSequence generation output { text } events(after: $after, logEpoch: $epoch) { through }
} }`

const expirySubscription = `subscription($id: ID!, $after: Int!, $epoch: ID) { runEvents(runId: $id, after: $after, logEpoch: $epoch) { through } }`

type expiry struct {
	Run struct {
		Status         string `json:"status"`
		LogEpoch       string `json:"logEpoch"`
		ExpiredThrough int64  `json:"expiredThrough"`
		LastSequence   int64  `json:"lastSequence"`
		Output         []struct {
			Text string `json:"text"`
		} `json:"output"`
	} `json:"run"`
}

// expiryOf reads a run without its events.
func expiryOf(ctx context.Context, t *testing.T, c *enginetest.Client, runID string) expiry {
	t.Helper()
	var e expiry
	if err := c.Do(ctx, `query($id: ID!) { run(id: $id) { status logEpoch expiredThrough lastSequence output { text } } }`, enginetest.Variables{"id": runID}, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

// wantExpired asks for events by query and by subscription, and wants CURSOR_EXPIRED of both. A run that was read a moment
// ago is shown from memory for a moment more.
func wantExpired(ctx context.Context, t *testing.T, c *enginetest.Client, vars enginetest.Variables) {
	t.Helper()
	if err := c.Do(ctx, expiryQuery, vars, &expiry{}); enginetest.Code(err) != "CURSOR_EXPIRED" {
		t.Fatalf("query of %v: %v, want CURSOR_EXPIRED", vars, err)
	}
	s, err := c.Dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for {
		op, err := s.Subscribe(expirySubscription, vars)
		if err == nil {
			_, err = op.Next(ctx, &struct{}{})
		}
		if enginetest.Code(err) == "CURSOR_EXPIRED" {
			return
		}
		if err != nil {
			t.Fatalf("subscription of %v: %v, want CURSOR_EXPIRED", vars, err)
		}
		if err := op.Stop(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond) // bounded by ctx
	}
}

// TestExpiredRun takes the log of a run away while the engine is at work: its readers are told so, and what its document
// and its conversation show stays.
func TestExpiredRun(t *testing.T) {
	engine := ownEngine(t)
	ctx := bounded(t) // begins when the programs are built
	c := clientOf(t, engine)
	agent := newAgent(ctx, t, c, scripted)
	r, events := complete(ctx, t, c, agent.ID, "talk", enginetest.Script(enginetest.Say("remember me")))
	last := enginetest.Last(events).Sequence
	batches := sessionBatches(ctx, t, c, r.SessionID, len(events))
	cursor := batches[len(batches)-1].Through

	live := start(ctx, t, c, agent.ID, "other", enginetest.Script(enginetest.CountHeld(5, 10*time.Millisecond)))
	if out, err := admin(ctx, t, engine.Data(), "expire-run", live.ID); err == nil || !strings.Contains(err.Error(), "has not ended") {
		t.Fatalf("a run that is at work expired: %q, %v", out, err)
	}
	release(ctx, t, engine, live.SessionID)
	for range 2 { // it may be repeated
		wantAdmin(ctx, t, engine.Data(), fmt.Sprintf("events 1 to %d", last), "expire-run", r.ID)
	}
	wantExpired(ctx, t, c, enginetest.Variables{"id": r.ID, "after": 0})
	wantExpired(ctx, t, c, enginetest.Variables{"id": r.ID, "after": last - 1})
	rest, err := c.Follow(ctx, r.ID, last)
	if err != nil || len(rest) != 0 {
		t.Fatalf("at the end of the log: %v, %v, want completion", rest, err)
	}
	e := expiryOf(ctx, t, c, r.ID)
	if e.Run.Status != "FINISHED" || e.Run.ExpiredThrough != last || e.Run.LastSequence != last || len(e.Run.Output) != 1 || e.Run.Output[0].Text != "remember me" {
		t.Fatalf("the run shows %+v", e)
	}
	said, err := c.Entries(ctx, r.SessionID, 10)
	if err != nil || len(said) != 2 || said[1].Text != "remember me" {
		t.Fatalf("the transcript shows %+v, %v", said, err)
	}
	// A reader of the conversation that had a part of it is told so; one that begins gets what is kept.
	second, events := complete(ctx, t, c, agent.ID, "talk", enginetest.Script(enginetest.Say("next")))
	wantFinished(t, events)
	wantAdmin(ctx, t, engine.Data(), "events 1 to", "expire-run", second.ID)
	third, events := complete(ctx, t, c, agent.ID, "talk", enginetest.Script(enginetest.Say("last")))
	wantFinished(t, events)
	for {
		w, err := c.WatchSession(ctx, r.SessionID, cursor)
		if err == nil {
			_, err = w.Next(ctx)
			w.Close()
		}
		if enginetest.Code(err) == "CURSOR_EXPIRED" {
			break
		}
		if err != nil {
			t.Fatalf("a cursor before what has expired: %v", err)
		}
		time.Sleep(50 * time.Millisecond) // bounded by ctx
	}
	for _, e := range sessionBatches(ctx, t, c, r.SessionID, len(events)) {
		if e.RunID != third.ID {
			t.Fatalf("a reader of the whole conversation got a batch of %s, want %s only", e.RunID, third.ID)
		}
	}
	wantClean(ctx, t, engine.Data())
}

// sessionBatches reads a conversation from its beginning, so many events.
func sessionBatches(ctx context.Context, t *testing.T, c *enginetest.Client, sessionID string, n int) []enginetest.SessionBatch {
	t.Helper()
	w, err := c.WatchSession(ctx, sessionID, "")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	batches, err := w.Until(ctx, func(batches []enginetest.SessionBatch) bool { return len(enginetest.Joined(batches)) >= n })
	if err != nil {
		t.Fatal(err)
	}
	return batches
}

// TestRetention lets the engine take logs away by itself.
func TestRetention(t *testing.T) {
	engine := ownEngineWith(t, enginetest.Options{Args: []string{"--retain", "1s"}})
	ctx := bounded(t) // begins when the programs are built
	c := clientOf(t, engine)
	agent := newAgent(ctx, t, c, scripted)
	r := start(ctx, t, c, agent.ID, "talk", enginetest.Script(enginetest.Say("hello"))) // who is slow finds no event of it
	for {
		if e := expiryOf(ctx, t, c, r.ID); e.Run.ExpiredThrough > 0 {
			break
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("the run's log is still there")
		}
	}
	wantExpired(ctx, t, c, enginetest.Variables{"id": r.ID, "after": 0})
	wantClean(ctx, t, engine.Data())
}

// TestVerifyAndRepair spoils what a store says of a run and the hash of another: both are found, the first is repaired, and the
// second refused.
func TestVerifyAndRepair(t *testing.T) {
	damaged[t.Name()] = true
	engine := ownEngine(t)
	ctx := bounded(t) // begins when the programs are built
	c := clientOf(t, engine)
	agent := newAgent(ctx, t, c, scripted)
	one, _ := complete(ctx, t, c, agent.ID, "one", enginetest.Script(enginetest.Say("one")))
	two, _ := complete(ctx, t, c, agent.ID, "two", enginetest.Script(enginetest.Say("two")))
	if err := engine.Stop(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(engine.Data(), "engine.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"UPDATE runs SET body = json_set(body, '$.status', 'FAILED', '$.lastSequence', 1) WHERE id = '" + one.ID + "'",
		"UPDATE chunks SET writer = 'eng_forged' WHERE run = '" + two.ID + "' AND first = 1",
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := admin(ctx, t, engine.Data(), "verify", "--pause", "0", "--json", "--quiet")
	var exit *exec.ExitError
	var report struct {
		Runs     int64 `json:"runs"`
		Findings []struct {
			Code string `json:"code"`
			Run  string `json:"run"`
		} `json:"findings"`
	}
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || json.Unmarshal([]byte(out), &report) != nil || report.Runs != 2 || len(report.Findings) != 2 ||
		report.Findings[0].Code != "projection" || report.Findings[0].Run != one.ID || report.Findings[1].Code != "chunk_hash" || report.Findings[1].Run != two.ID {
		t.Fatalf("verify: %s, %v", out, err)
	}
	for _, dry := range []string{"--dry-run", ""} {
		args := append([]string{"repair", "--pause", "0", "--quiet"}, strings.Fields(dry)...)
		out, err := admin(ctx, t, engine.Data(), args...)
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(out, "repair: projection "+one.ID) && !strings.Contains(out, "repaired: projection "+one.ID) ||
			!strings.Contains(out, "cannot repair: chunk_hash "+two.ID) {
			t.Fatalf("repair %s: %s, %v", dry, out, err)
		}
	}
	out, err = admin(ctx, t, engine.Data(), "verify", "--pause", "0", "--quiet")
	if err == nil || !strings.Contains(out, " 1 findings") || !strings.Contains(out, "chunk_hash") {
		t.Fatalf("after the repair: %s, %v", out, err)
	}
	if err := engine.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if r, err := clientOf(t, engine).Run(ctx, one.ID); err != nil || r.Status != "FINISHED" {
		t.Fatalf("the repaired run is %+v, %v", r, err)
	}
}

// TestBackup copies a store while runs are at work, makes another data folder of it, and goes on there: everything is
// there, cursors of the original are known as such, and agents may be used though nobody stated so to a new OpenFGA store.
func TestBackup(t *testing.T) {
	engine := ownEngine(t)
	ctx := bounded(t) // begins when the programs are built
	c := clientOf(t, engine)
	agent := newAgent(ctx, t, c, scripted)
	done, events := complete(ctx, t, c, agent.ID, "talk", enginetest.Script(enginetest.Say("before the backup")))
	attached := put(t, c, "note.txt", "text/plain", []byte("attached"))
	if attached.Status >= 300 {
		t.Fatalf("upload: %+v", attached)
	}
	live := start(ctx, t, c, agent.ID, "other", enginetest.Script(enginetest.CountHeld(40, 50*time.Millisecond)))
	seen := beforeKill(ctx, t, c, live.ID, 0, 5)

	folder := t.TempDir()
	kept := filepath.Join(folder, "backup")
	wantAdmin(ctx, t, engine.Data(), " 0 findings", "backup", kept)
	if out, err := admin(ctx, t, engine.Data(), "backup", kept); err == nil {
		t.Fatalf("a backup went over another: %q", out)
	}
	if out, err := admin(ctx, t, engine.Data(), "restore", kept); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Fatalf("a restore went into the folder of a running engine: %q, %v", out, err)
	}
	wantClean(ctx, t, engine.Data())
	old := expiryOf(ctx, t, c, done.ID).Run.LogEpoch
	release(ctx, t, engine, live.SessionID)
	rest, err := c.Follow(ctx, live.ID, enginetest.Last(seen).Sequence) // what the backup has not
	if err != nil {
		t.Fatal(err)
	}
	whole := append(seen, rest...)
	if err := engine.Stop(); err != nil {
		t.Fatal(err)
	}

	for _, fresh := range []bool{false, true} {
		data, err := os.MkdirTemp("", "harness-e2e-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(data) })
		wantAdmin(ctx, t, data, " 0 findings", "restore", kept)
		if fresh {
			for _, name := range []string{"openfga.sqlite", "openfga.sqlite-wal", "openfga.sqlite-shm"} {
				if err := os.Remove(filepath.Join(data, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Fatal(err)
				}
			}
		}
		again, err := enginetest.Start(ctx, enginetest.Options{Binaries: programs(t), Data: data})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = again.Cleanup() })
		d := clientOf(t, again)
		e := expiryOf(ctx, t, d, done.ID)
		if e.Run.LogEpoch == old || e.Run.LogEpoch == "" {
			t.Fatalf("the restored store has the incarnation %q of the original", e.Run.LogEpoch)
		}
		wantReplays(ctx, t, d, done.ID, events)
		// The client has read more of the live run than there is here: it would wait for ever, or read something else.
		wantExpired(ctx, t, d, enginetest.Variables{"id": live.ID, "after": enginetest.Last(whole).Sequence, "epoch": old})
		wantExpired(ctx, t, d, enginetest.Variables{"id": done.ID, "after": 0, "epoch": old})
		if err := d.Do(ctx, expiryQuery, enginetest.Variables{"id": done.ID, "after": 0, "epoch": e.Run.LogEpoch}, &expiry{}); err != nil {
			t.Fatal(err)
		}
		ended, err := d.Follow(ctx, live.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		if last := enginetest.Last(ended); last.Type != enginetest.RunFailed || len(ended) >= len(whole) {
			t.Fatalf("the run that was at work ended with %s after %d events", last, len(ended))
		}
		_, next := complete(ctx, t, d, agent.ID, "talk", enginetest.Script(enginetest.Say("after the restore")))
		wantFinished(t, next)
		wantClean(ctx, t, data)
		if err := again.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	restoreDamaged(ctx, t, kept)
}

// restoreDamaged restores a backup that has been damaged in each way.
func restoreDamaged(ctx context.Context, t *testing.T, kept string) {
	t.Helper()
	var m struct {
		Format int `json:"format"`
		Files  []struct {
			Path string `json:"path"`
		} `json:"files"`
	}
	manifest := filepath.Join(kept, "manifest.json")
	raw, err := os.ReadFile(manifest)
	if err != nil || json.Unmarshal(raw, &m) != nil || len(m.Files) < 4 {
		t.Fatalf("manifest: %s, %v", raw, err)
	}
	refused := func(why, path string, change func(raw []byte) []byte) {
		t.Helper()
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, change(before), 0o600); err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(t.TempDir(), "data")
		if out, err := admin(ctx, t, target, "restore", kept); err == nil || !strings.Contains(err.Error(), why) {
			t.Fatalf("restored: %q, %v; want %q", out, err, why)
		}
		if left, _ := os.ReadDir(filepath.Dir(target)); len(left) > 1 { // the empty target may be there
			t.Fatalf("a refused restore leaves %v", left)
		}
		if err := os.WriteFile(path, before, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range m.Files {
		refused("is not what the manifest says", filepath.Join(kept, f.Path), func(raw []byte) []byte {
			changed := append([]byte(nil), raw...)
			changed[len(changed)/2] ^= 1
			return changed
		})
	}
	refused("format", manifest, func(raw []byte) []byte { return []byte(strings.Replace(string(raw), `"format": 1`, `"format": 2`, 1)) })
	refused("cannot be decoded", manifest, func(raw []byte) []byte { return raw[:len(raw)/2] })
	refused("is missing", manifest, func(raw []byte) []byte { return []byte(strings.Replace(string(raw), `"blobs/`, `"blobs-/`, 1)) })
}
