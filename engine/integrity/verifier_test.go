package integrity_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/integrity"
	"github.com/harness-engine/harness-engine/store/files"
	"github.com/harness-engine/harness-engine/store/sqlite"
)

// again seals a chunk after a change and writes it back, as a bug of the engine would, not the disk.
func again(runID string, first int64, change func(c *event.Chunk)) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		w := open(t, dir)
		chunks, err := w.store.Chunks(t.Context(), runID, first-1, 1)
		w.must(err)
		w.close()
		c := chunks[0]
		change(&c)
		c.Seal()
		execute(t, dir, fmt.Sprintf(`UPDATE chunks SET first = %d, last = %d, session = '%s', gen = %d, terminal = %t, body = CAST('%s' AS BLOB), sha256 = x'%x',
			cursors = '{"worker":{"incarnation":"wrk_1","seq":%d}}' WHERE run = '%s' AND first = %d`,
			c.First, c.Last, c.SessionID, c.Gen, c.Terminal, c.Body, c.SHA256, c.Cursors["worker"].Seq, runID, first))
	}
}

// statements are a change of the database.
func statements(s ...string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) { execute(t, dir, s...) }
}

// set changes a field of a document's body.
func set(table, id, path, value string) func(t *testing.T, dir string) {
	return statements(fmt.Sprintf("UPDATE %s SET body = json_set(body, '%s', %s) WHERE id = '%s'", table, path, value, id))
}

// blobFile finds the only blob below a folder.
func blobFile(t *testing.T, dir, below string) string {
	t.Helper()
	var found string
	err := filepath.WalkDir(filepath.Join(dir, "blobs", below), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found = path
		}
		return err
	})
	if err != nil || found == "" {
		t.Fatalf("no blob below %s: %v", below, err)
	}
	return found
}

func remove(below string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		if err := os.Remove(blobFile(t, dir, below)); err != nil {
			t.Fatal(err)
		}
	}
}

func flip(below string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		path := blobFile(t, dir, below)
		raw, err := os.ReadFile(path)
		if err == nil {
			raw[0] ^= 1
			err = os.WriteFile(path, raw, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// added appends a chunk that the engine would never append.
func added(runID, sessionID string, first, gen int64, data ...event.Data) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		w := open(t, dir)
		defer w.close()
		w.chunk(runID, sessionID, first, gen, 9, data...)
	}
}

// damages is every way in which a store is damaged, and the one thing that is found of it.
var damages = []struct {
	name   string
	damage func(t *testing.T, dir string)
	code   integrity.Code
	about  string // an id or a word in the finding
	more   int    // findings of the same code beyond the one
}{
	{"a byte of a body", statements("UPDATE chunks SET body = CAST(replace(CAST(body AS TEXT), 'hello', 'hallo') AS BLOB) WHERE run = '" + done + "' AND first = 2"), integrity.ChunkHash, done, 0},
	{"a byte of a hash", statements("UPDATE chunks SET sha256 = zeroblob(32) WHERE run = '" + done + "' AND first = 2"), integrity.ChunkHash, done, 0},
	{"a byte of a live log", statements("UPDATE chunks SET writer = 'eng_2' WHERE run = '" + live + "' AND first = 2"), integrity.ChunkHash, live, 0},
	{"cursors are not JSON", statements("UPDATE chunks SET cursors = '{' WHERE run = '" + done + "' AND first = 2"), integrity.ChunkDamaged, done, 0},
	{"a body that is not events", again(done, 2, func(c *event.Chunk) { c.Body = []byte(`[1,2,3]`) }), integrity.ChunkDamaged, done, 0},
	{"the first chunk is gone", statements("DELETE FROM chunks WHERE run = '" + done + "' AND first = 1"), integrity.LogGap, done, 0},
	{"a chunk in the middle is gone", statements("DELETE FROM chunks WHERE run = '" + done + "' AND first = 2"), integrity.LogGap, done, 0},
	{"the terminal is gone", statements("DELETE FROM chunks WHERE run = '" + done + "' AND first = 6"), integrity.LogShort, done, 0},
	{"a log is gone", statements("DELETE FROM chunks WHERE run = '" + done + "'"), integrity.LogMissing, done, 0},
	{"a live log is gone", statements("DELETE FROM chunks WHERE run = '" + live + "'"), integrity.LogMissing, live, 0},
	{"a chunk is there twice", again(done, 5, func(c *event.Chunk) { c.First, c.Last = 4, 4 }), integrity.LogOverlap, done, 0},
	{"a chunk of another session", again(done, 2, func(c *event.Chunk) { c.SessionID = sesLive }), integrity.ChunkOwner, done, 0},
	{"a generation goes down", again(done, 2, func(c *event.Chunk) { c.Gen = 0 }), integrity.GenerationBack, done, 0},
	{"a generation that nobody gave out", again(done, 6, func(c *event.Chunk) { c.Gen = 9 }), integrity.GenerationBack, done, 0},
	{"a cursor goes back", again(done, 6, func(c *event.Chunk) { c.Cursors["worker"] = event.Cursor{Incarnation: "wrk_1", Seq: 2} }), integrity.CursorBack, done, 0},
	{"a second terminal", added(done, sesDone, 7, 3, finish), integrity.AfterTerminal, done, 0},
	{"an event after the terminal", added(done, sesDone, 7, 3, opened), integrity.AfterTerminal, done, 0},
	{"a terminal with a tool open", added(asked, sesAsked, 5, 1, finish), integrity.AfterTerminal, asked, 0},
	{"an event that breaks a rule", added(live, sesLive, 4, 2, result), integrity.EventOrder, live, 0},
	{"a delta of a closed message", again(done, 2, func(c *event.Chunk) {
		c.Body = []byte(strings.ReplaceAll(string(c.Body), `"hello"`, `"hello"`))
		parts := strings.SplitN(strings.Trim(string(c.Body), "[]"), "},{", 3)
		c.Body = []byte("[" + parts[0] + "},{" + parts[2] + ",{" + parts[1] + "}]")
	}), integrity.EventOrder, done, 0},
	{"a log without a run", statements("DELETE FROM runs WHERE id = '" + parted + "'"), integrity.LogOrphaned, parted, 0},
	{"a log of a run that was refused", statements("UPDATE runs SET body = json_set(body, '$.status', 'REJECTED') WHERE id = '" + resumed + "'"), integrity.LogUnexpected, resumed, 0},
	{"an ended run whose log goes on", set("runs", live, "$.status", "'FINISHED'"), integrity.TerminalMissing, live, 0},

	{"a document that is not JSON", statements("UPDATE runs SET body = '{' WHERE id = '" + resumed + "'"), integrity.DocumentDamaged, resumed, 0},
	{"a session that is not JSON", statements("UPDATE sessions SET body = '{' WHERE id = '" + sesDone + "'"), integrity.DocumentDamaged, sesDone, 0},
	{"another status", set("runs", done, "$.status", "'FAILED'"), integrity.Projection, "status", 0},
	{"another last sequence", set("runs", done, "$.lastSequence", "5"), integrity.Projection, "lastSequence", 0},
	{"a last sequence beyond the log", set("runs", done, "$.lastSequence", "7"), integrity.LogShort, done, 0},
	{"another terminal", set("runs", done, "$.terminal", `json('{"type":"run.finished"}')`), integrity.Projection, "terminal", -1},
	{"another output", set("runs", done, "$.output[0].text", "'hallo'"), integrity.Projection, "output", 0},
	{"another end", set("runs", done, "$.endedAt", "'2020-01-01T00:00:00Z'"), integrity.Projection, "endedAt", 0},
	{"a run without a session", statements("DELETE FROM sessions WHERE id = '" + sesDone + "'"), integrity.SessionMissing, done, 0},

	{"an order that was not given", set("sessions", sesDone, "$.nextOrd", "1"), integrity.BindingOrder, done, 0},
	{"an order that was given twice", statements("UPDATE runs SET ord = 1, body = json_set(body, '$.ord', 1) WHERE id = '" + resumed + "'"), integrity.BindingOrder, resumed, 0},
	{"an active run that is not there", set("sessions", sesDone, "$.active", `json('{"run":"run_none","ord":1,"epoch":1,"pin":{"agentVersion":1,"harness":"scripted"},"gen":1,"owner":"e","beat":0}')`), integrity.BindingRun, "run_none", 0},
	{"a session that lets a run go", statements("UPDATE sessions SET body = json_remove(body, '$.active', '$.queue') WHERE id = '" + sesLive + "'"), integrity.RunUnheld, live, 0},
	{"a queue without anything ahead", statements("UPDATE sessions SET body = json_remove(body, '$.active') WHERE id = '" + sesLive + "'"), integrity.BindingInvalid, sesLive, -1},
	{"a queued run that has ended", set("sessions", sesLive, "$.queue[0].run", "'"+gone+"'"), integrity.BindingRun, gone, -1},
	{"an interrupt that nobody waits for", statements("UPDATE sessions SET body = json_remove(body, '$.pending') WHERE id = '" + sesAsked + "'"), integrity.BindingInterrupt, asked, 0},
	{"an interrupt that was settled otherwise", set("sessions", sesParted, "$.decided.how", "'DISMISSED'"), integrity.BindingInterrupt, parted, 0},
	{"a lease that the binding never gave", set("sessions", sesDone, "$.leaseGen", "2"), integrity.GenerationBack, done, 0},
	{"a state that is gone", remove("threads.sub"), integrity.HeadMissing, sesDone, 0},
	{"a byte of a state", flip("threads.sub"), integrity.HeadDamaged, sesDone, 0},
	{"a head of another size", set("sessions", sesDone, "$.head.size", "6"), integrity.HeadDamaged, sesDone, 0},
	{"a head that ends its run otherwise", statements("UPDATE sessions SET body = json_set(body, '$.head.terminal.events[0].type', 'text.started', '$.head.terminal.events[0].data', json('{\"messageId\":\"m\",\"role\":\"assistant\"}')) WHERE id = '" + sesDone + "'"), integrity.HeadDiffers, done, 0},
	{"a head of a run that is not there", set("sessions", sesDone, "$.head.byRun", "'run_none'"), integrity.BindingRun, "run_none", 0},

	{"an attachment that is gone", remove("attachments"), integrity.AttachmentBlob, attachmentID, 0},
	{"a byte of an attachment", flip("attachments"), integrity.AttachmentBlob, attachmentID, 0},
	{"a version that is gone", statements("DELETE FROM versions"), integrity.AgentVersion, agentID, 0},
}

// TestEachDamageIsFound damages copies of a store in each way: each is found, and nothing else.
func TestEachDamageIsFound(t *testing.T) {
	dir := t.TempDir()
	populate(t, dir)
	if r := verify(t.Context(), t, dir); len(r.Findings) != 0 || len(r.Unsettled) != 0 || r.Runs != 7 || r.Events != 20 || r.Sessions != 4 || r.Expired != 1 || r.Attachments != 1 || r.Agents != 1 {
		t.Fatalf("a store that is well: %+v", r)
	} else if raw, err := json.Marshal(r); err != nil || !bytes.Contains(raw, []byte(`"findings":[]`)) {
		t.Errorf("the report of a store without findings is %s, %v", raw, err)
	}
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			to := copyOf(t, dir)
			d.damage(t, to)
			r := verify(t.Context(), t, to)
			if len(r.Findings) == 0 {
				t.Fatalf("nothing was found; unsettled: %v", r.Unsettled)
			}
			found := false
			for _, f := range r.Findings {
				found = found || f.Code == d.code && strings.Contains(f.String(), d.about)
			}
			if !found || d.more == 0 && len(r.Findings) != 1 {
				t.Fatalf("found %v, want one %s about %s", r.Findings, d.code, d.about)
			}
		})
	}
}

// TestUnsettledIsNoFinding leaves what an engine that died leaves between two steps.
func TestUnsettledIsNoFinding(t *testing.T) {
	dir := t.TempDir()
	populate(t, dir)
	active := func(runID string) string {
		return `json('{"run":"` + runID + `","ord":1,"epoch":1,"pin":{"agentVersion":1,"harness":"scripted"},"gen":3,"owner":"e","beat":0}')`
	}
	for name, change := range map[string]func(t *testing.T, dir string){
		"the terminal is not projected": statements(
			"UPDATE runs SET body = json_remove(json_set(body, '$.status', 'RUNNING'), '$.terminal', '$.endedAt', '$.output') WHERE id = '"+done+"'",
			"UPDATE sessions SET body = json_set(body, '$.active', "+active(done)+") WHERE id = '"+sesDone+"'"),
		"the conversation is not freed": set("sessions", sesDone, "$.active", active(done)),
		"the start is not projected":    set("runs", live, "$.status", "'QUEUED'"),
		"tuples are not applied":        set("agents", agentID, "$.authz.appliedRev", "0"),
		"the interrupt is not recorded": statements("UPDATE runs SET body = json_remove(body, '$.interrupt.settled', '$.interrupt.resumedBy') WHERE id = '" + parted + "'"),
		"a dropped run is not ended":    statements("UPDATE sessions SET body = json_remove(body, '$.queue') WHERE id = '" + sesLive + "'"),
		"the expired log is still there": func(t *testing.T, dir string) {
			execute(t, dir, "UPDATE runs SET body = json_set(body, '$.expiredThrough', 6) WHERE id = '"+done+"'")
		},
		"it is half removed": func(t *testing.T, dir string) {
			execute(t, dir, "UPDATE runs SET body = json_set(body, '$.expiredThrough', 6) WHERE id = '"+done+"'", "DELETE FROM chunks WHERE run = '"+done+"' AND first < 5")
		},
	} {
		t.Run(name, func(t *testing.T) {
			to := copyOf(t, dir)
			change(t, to)
			if r := verify(t.Context(), t, to); len(r.Findings) != 0 {
				t.Fatalf("found %v", r.Findings)
			}
		})
	}
}

// TestSecondLook changes what looked wrong before it is looked at again: it is no finding then; what stays is one.
func TestSecondLook(t *testing.T) {
	dir := t.TempDir()
	populate(t, dir)
	execute(t, dir, "DELETE FROM versions", "UPDATE chunks SET sha256 = zeroblob(32) WHERE run = '"+done+"' AND first = 2")
	s, err := sqlite.OpenReader(t.Context(), sqlite.Options{Path: filepath.Join(dir, "engine.sqlite"), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	blobs, err := files.NewReader(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	healed := false
	r, err := integrity.Verify(t.Context(), integrity.Options{Source: s, Blobs: blobs, Pause: time.Millisecond, Progress: func(noun string, _ int64) {
		if noun == "attachments" && !healed { // the last that is looked at
			healed = true
			execute(t, dir, "INSERT INTO versions (agent, number, body) VALUES ('"+agentID+"', 1, '{}')")
		}
	}})
	if err != nil || len(r.Findings) != 1 || r.Findings[0].Code != integrity.ChunkHash || r.Events != 15 {
		t.Fatalf("%+v, %v", r, err)
	}
}
