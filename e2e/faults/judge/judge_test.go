package judge

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
)

const runID = "run_1"

// said is what the worker of the test yields.
func said() []event.Event {
	return data(
		event.TextStarted{MessageID: "m1", Role: "assistant"},
		event.TextDelta{MessageID: "m1", Delta: "one "},
		event.TextDelta{MessageID: "m1", Delta: "two "},
		event.TextDelta{MessageID: "m1", Delta: "three "},
		event.TextFinished{MessageID: "m1"},
		event.ToolStarted{ToolCallID: "t1", Name: "look"},
		event.ToolFinished{ToolCallID: "t1", Result: "seen"},
		event.RunFinished{Outcome: "success", StopReason: "end_turn", Thread: event.ThreadState{Durability: event.DurabilityLocal}},
	)
}

func data(all ...event.Data) []event.Event {
	out := make([]event.Event, len(all))
	for i, d := range all {
		out[i] = event.Event{Data: d}
	}
	return out
}

// chunk makes a chunk of the log.
func chunk(t *testing.T, first, gen int64, writer string, events ...event.Event) event.Chunk {
	t.Helper()
	c, err := event.NewChunk(event.ChunkHeader{RunID: runID, SessionID: "ses_1", First: first, Gen: gen, Writer: writer}, events)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var (
	begun = event.Event{Data: event.RunStarted{Harness: "scripted", AdapterVersion: "1", AgentVersion: 1, WorkerInstance: "wrk_1"}}
	fence = func(gen int64) event.Event { return event.Event{Data: event.RunRecovered{Generation: gen}} }
)

// good is a log that two engines wrote, one after the other, in six chunks.
func good(t *testing.T) []event.Chunk {
	s := said()
	return []event.Chunk{
		chunk(t, 1, 1, "a", begun),
		chunk(t, 2, 1, "a", s[0], s[1]),
		chunk(t, 4, 1, "a", s[2]),
		chunk(t, 5, 2, "b", fence(2)),
		chunk(t, 6, 2, "b", s[3:7]...),
		chunk(t, 10, 2, "b", s[7]),
	}
}

var finished = Document{Run: runID, Status: "FINISHED", Last: 10}

func logOf(t *testing.T, chunks []event.Chunk) []event.Event {
	t.Helper()
	events, f := CheckLog(finished, chunks)
	if len(f) > 0 {
		t.Fatalf("a good log was found wrong: %v", f)
	}
	return events
}

func recordOf(events []event.Event) Record {
	return Record{Run: runID, Instance: "wrk_1", Session: "ses_1", Events: events, Ended: true}
}

// want fails unless everything that was found is of the class; none where it is empty.
func want(t *testing.T, f Findings, class Class) {
	t.Helper()
	if class == "" && len(f) > 0 {
		t.Errorf("what is right was found wrong: %v", f)
	}
	if class != "" && !f.Has(class) {
		t.Errorf("what is %s was not found; found: %v", class, f)
	}
}

// TestDoctoredLog damages a log in every way that the judge claims to find.
func TestDoctoredLog(t *testing.T) {
	s := said()
	for name, test := range map[string]struct {
		doctor func(c []event.Chunk) []event.Chunk
		doc    *Document
		class  Class
	}{
		"nothing":              {func(c []event.Chunk) []event.Chunk { return c }, nil, ""},
		"a chunk is gone":      {func(c []event.Chunk) []event.Chunk { return slices.Delete(c, 2, 3) }, nil, Lost},
		"the first is gone":    {func(c []event.Chunk) []event.Chunk { return c[1:] }, nil, Lost},
		"the end is gone":      {func(c []event.Chunk) []event.Chunk { return c[:5] }, nil, Lost},
		"everything is gone":   {func(c []event.Chunk) []event.Chunk { return nil }, nil, Lost},
		"a byte differs":       {func(c []event.Chunk) []event.Chunk { c[1].Body[30] ^= 1; return c }, nil, Lost},
		"a chunk comes twice":  {func(c []event.Chunk) []event.Chunk { return slices.Insert(c, 3, c[2]) }, nil, Doubled},
		"chunks overlap":       {func(c []event.Chunk) []event.Chunk { return slices.Insert(c, 3, chunk(t, 4, 1, "a", s[2], s[3])) }, nil, Doubled},
		"the loser goes on":    {func(c []event.Chunk) []event.Chunk { c[4] = chunk(t, 6, 1, "a", s[3:7]...); return c }, nil, Stale},
		"the loser has an end": {func(c []event.Chunk) []event.Chunk { c[5] = chunk(t, 10, 1, "a", s[7]); return c }, nil, Stale},
		"two of a generation":  {func(c []event.Chunk) []event.Chunk { c[4] = chunk(t, 6, 2, "c", s[3:7]...); return c }, nil, Stale},
		"no fence":             {func(c []event.Chunk) []event.Chunk { c[3] = chunk(t, 5, 2, "b", s[3]); return c }, nil, Stale},
		"another's fence":      {func(c []event.Chunk) []event.Chunk { c[3] = chunk(t, 5, 2, "b", fence(3)); return c }, nil, Stale},
		"a fence in the midst": {func(c []event.Chunk) []event.Chunk { c[2] = chunk(t, 4, 1, "a", fence(1)); return c }, nil, Stale},
		"two ends": {func(c []event.Chunk) []event.Chunk {
			return append(c, chunk(t, 11, 2, "b", event.Event{Data: event.RunCancelled{Reason: event.CancelClientRequest}}))
		}, nil, Doubled},
		"more behind the end": {func(c []event.Chunk) []event.Chunk { return append(c, chunk(t, 11, 2, "b", s[2])) }, nil, Stale},
		"the document lags":   {func(c []event.Chunk) []event.Chunk { return c }, &Document{Run: runID, Status: "RUNNING", Last: 1}, Other},
		"the document differs": {func(c []event.Chunk) []event.Chunk { return c },
			&Document{Run: runID, Status: "FAILED", Last: 10}, Other},
	} {
		t.Run(name, func(t *testing.T) {
			doc := finished
			if test.doc != nil {
				doc = *test.doc
			}
			_, f := CheckLog(doc, test.doctor(good(t)))
			want(t, f, test.class)
		})
	}
}

// TestDoctoredRecord compares a good log with a worker that says something else.
func TestDoctoredRecord(t *testing.T) {
	log := logOf(t, good(t))
	s := said()
	for name, test := range map[string]struct {
		record []Record
		class  Class
	}{
		"the same":               {[]Record{recordOf(s)}, ""},
		"one more in the midst":  {[]Record{recordOf(slices.Insert(slices.Clone(s), 3, data(event.TextDelta{MessageID: "m1", Delta: "lost "})...))}, Lost},
		"one more at the end":    {[]Record{recordOf(append(slices.Clone(s), s[2]))}, Lost},
		"one less":               {[]Record{recordOf(slices.Delete(slices.Clone(s), 2, 3))}, Other},
		"another":                {[]Record{recordOf(slices.Replace(slices.Clone(s), 2, 3, data(event.TextDelta{MessageID: "m1", Delta: "other "})...))}, Other},
		"the other way round":    {[]Record{recordOf([]event.Event{s[0], s[3], s[2], s[1], s[4], s[5], s[6], s[7]})}, Reordered},
		"two workers":            {[]Record{recordOf(s), {Run: runID, Instance: "wrk_2", Events: s[:2]}}, Doubled},
		"none":                   {nil, Other},
		"that of another worker": {[]Record{{Run: runID, Instance: "wrk_2", Events: s}}, Doubled},
	} {
		t.Run(name, func(t *testing.T) {
			_, f := CheckRecords(runID, log, test.record)
			want(t, f, test.class)
		})
	}
}

// TestDoubledInLog: the log has twice what the worker yielded once.
func TestDoubledInLog(t *testing.T) {
	s := said()
	chunks := []event.Chunk{chunk(t, 1, 1, "a", begun), chunk(t, 2, 1, "a", s[0], s[1], s[1], s[2], s[3], s[4], s[5], s[6]), chunk(t, 10, 1, "a", s[7])}
	_, f := CheckRecords(runID, logOf(t, chunks), []Record{recordOf(s)})
	want(t, f, Doubled)
}

// TestAdmittedLoss: a lost worker's last words may be missing where the engine's own terminal says so, and only there.
func TestAdmittedLoss(t *testing.T) {
	s := said()
	lost := event.RunError{Code: "worker_lost", Message: "gone", Category: event.CategoryUnavailable, SideEffects: event.SideEffectsPossible}
	ends := func(events ...event.Event) []event.Event {
		chunks := []event.Chunk{chunk(t, 1, 1, "a", begun), chunk(t, 2, 1, "a", s[0], s[1]), chunk(t, 4, 2, "b", fence(2)), chunk(t, 5, 2, "b", events...)}
		status := ended[events[len(events)-1].Type()]
		log, f := CheckLog(Document{Run: runID, Status: status, Last: 4 + int64(len(events))}, chunks)
		want(t, f, "")
		return log
	}
	closed := event.Event{Data: event.TextFinished{MessageID: "m1"}}
	end, f := CheckRecords(runID, ends(closed, event.Event{Data: lost}), []Record{recordOf(s)})
	want(t, f, "")
	if !end.Admitted || end.Unlogged != 6 || end.Code != "worker_lost" {
		t.Errorf("the end is %+v, want 6 events of an admitted loss", end)
	}
	// Nobody yielded it, and it is none of the engine's own.
	_, f = CheckRecords(runID, ends(s[2], s[1], closed, event.Event{Data: lost}), []Record{recordOf(s)})
	want(t, f, Doubled)
	_, f = CheckRecords(runID, ends(event.Event{Data: event.Warning{Code: "w", Message: "made up"}}, closed, event.Event{Data: lost}), []Record{recordOf(s)})
	want(t, f, Other)
	// An end that only the worker can know.
	_, f = CheckRecords(runID, ends(closed, s[7]), []Record{recordOf(s[:2])})
	want(t, f, Other)
}

// prints is a log as clients see it.
func prints(n int) []Seen {
	out := make([]Seen, n)
	for i := range out {
		out[i] = Seen{Sequence: int64(i) + 1, Print: uint64(1000 + i)}
	}
	return out
}

// TestDoctoredView spoils what a client saw.
func TestDoctoredView(t *testing.T) {
	for name, test := range map[string]struct {
		doctor func(v []Seen) []Seen
		whole  bool
		class  Class
	}{
		"all of it":              {func(v []Seen) []Seen { return v }, true, ""},
		"as far as it went":      {func(v []Seen) []Seen { return v[:4] }, false, ""},
		"nothing yet":            {func(v []Seen) []Seen { return nil }, false, ""},
		"the end too early":      {func(v []Seen) []Seen { return v[:4] }, true, Lost},
		"a gap":                  {func(v []Seen) []Seen { return slices.Delete(v, 3, 5) }, true, Lost},
		"not from the beginning": {func(v []Seen) []Seen { return v[1:] }, true, Lost},
		"one twice":              {func(v []Seen) []Seen { return slices.Insert(v, 4, v[3]) }, true, Doubled},
		"a part twice":           {func(v []Seen) []Seen { return slices.Insert(v, 5, v[2], v[3], v[4]) }, true, Doubled},
		"two swapped":            {func(v []Seen) []Seen { v[3], v[4] = v[4], v[3]; return v }, true, Reordered},
		"another event":          {func(v []Seen) []Seen { v[3].Print++; return v }, true, Lost},
		"more than the log":      {func(v []Seen) []Seen { return append(v, Seen{Sequence: 11, Print: 1}) }, false, Lost},
	} {
		t.Run(name, func(t *testing.T) {
			want(t, CheckView(View{Client: "c", Run: runID, Events: test.doctor(prints(10)), Whole: test.whole}, prints(10)), test.class)
		})
	}
}

// TestDoctoredSession spoils what a client of a whole conversation saw.
func TestDoctoredSession(t *testing.T) {
	runs := []SessionRun{{Ord: 2, Run: "run_b", Log: prints(3)}, {Ord: 1, Run: "run_a", Log: prints(4)}}
	whole := func() (out []SessionSeen) {
		for _, e := range prints(4) {
			out = append(out, SessionSeen{1, "run_a", e})
		}
		for _, e := range prints(3) {
			out = append(out, SessionSeen{2, "run_b", e})
		}
		return out
	}
	for name, test := range map[string]struct {
		doctor func(v []SessionSeen) []SessionSeen
		class  Class
	}{
		"all of it":        {func(v []SessionSeen) []SessionSeen { return v }, ""},
		"a gap":            {func(v []SessionSeen) []SessionSeen { return slices.Delete(v, 1, 2) }, Lost},
		"a run is missing": {func(v []SessionSeen) []SessionSeen { return v[4:] }, Lost},
		"an end too early": {func(v []SessionSeen) []SessionSeen { return slices.Delete(v, 3, 4) }, Lost},
		"one twice":        {func(v []SessionSeen) []SessionSeen { return slices.Insert(v, 3, v[2]) }, Doubled},
		"runs mixed":       {func(v []SessionSeen) []SessionSeen { v[3], v[4] = v[4], v[3]; return v }, Reordered},
		"a stranger":       {func(v []SessionSeen) []SessionSeen { return append(v, SessionSeen{3, "run_c", prints(1)[0]}) }, Lost},
	} {
		t.Run(name, func(t *testing.T) {
			want(t, CheckSession(SessionView{Client: "c", Session: "ses_1", Events: test.doctor(whole())}, runs), test.class)
		})
	}
	want(t, CheckSession(SessionView{Client: "c", Session: "ses_1"}, []SessionRun{{Ord: 1, Run: "run_a"}, {Ord: 1, Run: "run_b"}}), Doubled)
}

// TestAnswers: one key, one run.
func TestAnswers(t *testing.T) {
	stored := func(run string) bool { return run == "run_1" || run == "run_2" }
	for name, test := range map[string]struct {
		ask   Ask
		class Class
	}{
		"one answer":             {Ask{Key: "k", Answers: []Answer{{Run: "run_1"}, {Run: "run_1"}}, Differ: []Answer{{Code: "IDEMPOTENCY_CONFLICT"}}}, ""},
		"refused":                {Ask{Key: "k", Answers: []Answer{{Code: "SESSION_BUSY"}, {Code: "SESSION_BUSY"}}}, ""},
		"never answered":         {Ask{Key: "k"}, ""},
		"two runs":               {Ask{Key: "k", Answers: []Answer{{Run: "run_1"}, {Run: "run_2"}}}, Doubled},
		"refused, then admitted": {Ask{Key: "k", Answers: []Answer{{Code: "SESSION_BUSY"}, {Run: "run_2"}}}, Other},
		"gone":                   {Ask{Key: "k", Answers: []Answer{{Run: "run_3"}}}, Lost},
		"another request taken":  {Ask{Key: "k", Answers: []Answer{{Run: "run_1"}}, Differ: []Answer{{Run: "run_1"}}}, Other},
	} {
		t.Run(name, func(t *testing.T) { want(t, CheckAsk(test.ask, stored), test.class) })
	}
}

// TestOnce: no key has two runs, no interrupted run goes on twice.
func TestOnce(t *testing.T) {
	keyOf := func(text string) string { k, _, _ := strings.Cut(text, " "); return k }
	want(t, CheckOnce([]Stored{{Run: "run_1", Text: "k1 x"}, {Run: "run_2", Text: "k2 x"}, {Run: "run_3", Continues: "run_1"}}, keyOf), "")
	want(t, CheckOnce([]Stored{{Run: "run_1", Text: "k1 x"}, {Run: "run_2", Text: "k1 x"}}, keyOf), Doubled)
	want(t, CheckOnce([]Stored{{Run: "run_2", Continues: "run_1"}, {Run: "run_3", Continues: "run_1"}}, keyOf), Doubled)
}

// TestEffects: a tool call that two runs of a conversation made.
func TestEffects(t *testing.T) {
	a, b := recordOf(said()), recordOf(said()[5:])
	want(t, CheckEffects([]Record{a}), "")
	b.Run = "run_2"
	want(t, CheckEffects([]Record{a, b}), Doubled)
}

// encoded is a record as a worker writes it, a step for each event.
func encoded(t testing.TB, events []event.Event) []byte {
	t.Helper()
	var b bytes.Buffer
	fmt.Fprintln(&b, `{"runId":"run_1","instance":"wrk_1","sessionId":"ses_1","epoch":1,"sandboxGen":1}`)
	for i, e := range events {
		raw, err := event.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, `{"seq":%d,"events":[%s]}`+"\n", i+1, raw)
	}
	fmt.Fprintln(&b, `{"end":true}`)
	return b.Bytes()
}

func TestReadRecord(t *testing.T) {
	raw := encoded(t, said())
	r, err := ReadRecord(bytes.NewReader(raw))
	if err != nil || len(r.Events) != len(said()) || !r.Ended || r.Run != runID || r.Instance != "wrk_1" {
		t.Fatalf("read %+v: %v", r, err)
	}
	// A worker that was killed leaves half a line, which nobody can have read.
	lines := bytes.SplitAfter(raw, []byte("\n"))
	cut := bytes.Join(lines[:4], nil)
	r, err = ReadRecord(bytes.NewReader(append(cut, lines[4][:10]...)))
	if err != nil || len(r.Events) != 3 || r.Ended {
		t.Fatalf("read %+v: %v", r, err)
	}
	for name, bad := range map[string]string{
		"no head":   "",
		"a gap":     string(bytes.Join(append(slices.Clone(lines[:2]), lines[3:]...), nil)),
		"garbage":   string(lines[0]) + "{]\n",
		"truncated": string(lines[0]) + `{"truncated":true}` + "\n",
	} {
		if _, err := ReadRecord(strings.NewReader(bad)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzReadRecord(f *testing.F) {
	f.Add(encoded(f, said()))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := ReadRecord(bytes.NewReader(raw))
		if err == nil && len(r.Events) > len(raw) {
			t.Errorf("%d events from %d bytes", len(r.Events), len(raw))
		}
	})
}
