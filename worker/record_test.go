package worker

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRecord: a record holds every step as the event stream gives it, and says that the run has ended.
func TestRecord(t *testing.T) {
	dir := t.TempDir()
	w := newWorker(t, &testDriver{turn: echo}, func(o *HostOptions) { o.Record = dir })
	c := w.bound(t)
	startTurn(t, c, "run_1", "hello")
	got := drain(t, c, "run_1", 0)

	f, err := os.Open(filepath.Join(dir, "run_1."+c.Instance()+".ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Scan()
	var head recordHead
	if err := json.Unmarshal(lines.Bytes(), &head); err != nil || head.RunID != "run_1" || head.SandboxGen != 1 || head.Instance != c.Instance() {
		t.Fatalf("%q %v", lines.Text(), err)
	}
	for i, want := range got {
		if !lines.Scan() {
			t.Fatalf("the record ends after %d steps", i)
		}
		e, end, err := decodeLine(lines.Bytes(), want.Seq)
		if err != nil || end {
			t.Fatal(end, err)
		}
		if show(got[i:i+1]) != show(append(got[:0:0], e)) {
			t.Fatalf("step %d: %s", want.Seq, lines.Text())
		}
	}
	if !lines.Scan() || lines.Text() != `{"end":true}` || lines.Scan() {
		t.Fatalf("after the steps: %q", lines.Text())
	}
}

// TestRecordIsNoNeed: a folder that cannot be written to costs the record, not the run.
func TestRecordIsNoNeed(t *testing.T) {
	w := newWorker(t, &testDriver{turn: echo}, func(o *HostOptions) { o.Record = filepath.Join(t.TempDir(), "none") })
	c := w.bound(t)
	startTurn(t, c, "run_1", "hello")
	if got := show(drain(t, c, "run_1", 0)); !strings.HasPrefix(got, "1[") {
		t.Fatal(got)
	}
}
