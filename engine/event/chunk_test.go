package event

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func testChunk(t *testing.T) Chunk {
	t.Helper()
	c, err := NewChunk(ChunkHeader{
		RunID: "run_1", SessionID: "ses_1", First: 4, Gen: 2, Writer: "w",
		Cursors: map[string]Cursor{"a": {"i", 1}, "b": {"j", 2}}, Facts: map[string]string{"k": "v", "l": "m"},
	}, []Event{
		{Time: testTime, Data: TextDelta{MessageID: "m", Delta: "x"}},
		{Time: testTime, Namespace: []string{"n"}, Data: TextFinished{MessageID: "m"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestChunkRoundTrip(t *testing.T) {
	c := testChunk(t)
	if c.Last != 5 || c.Len() != 2 || c.Terminal || c.Verify() != nil {
		t.Errorf("chunk %+v", c)
	}
	events, err := c.Events()
	if err != nil {
		t.Fatal(err)
	}
	want := Event{RunID: "run_1", SessionID: "ses_1", Sequence: 5, Time: testTime, Namespace: []string{"n"}, Data: TextFinished{MessageID: "m"}}
	if !reflect.DeepEqual(events[1], want) {
		t.Errorf("got %+v", events[1])
	}
}

// TestSealCoversEverything: another value in any field breaks the seal, and a value cannot move between fields.
func TestSealCoversEverything(t *testing.T) {
	changes := map[string]func(c *Chunk){
		"run":             func(c *Chunk) { c.RunID = "run_2" },
		"session":         func(c *Chunk) { c.SessionID = "" },
		"moved":           func(c *Chunk) { c.RunID, c.SessionID = "run_1s", "es_1" },
		"first":           func(c *Chunk) { c.First++ },
		"last":            func(c *Chunk) { c.Last++ },
		"gen":             func(c *Chunk) { c.Gen++ },
		"writer":          func(c *Chunk) { c.Writer += "x" },
		"cursor":          func(c *Chunk) { c.Cursors["a"] = Cursor{"i", 2} },
		"incarnation":     func(c *Chunk) { c.Cursors["a"] = Cursor{"k", 1} },
		"cursor added":    func(c *Chunk) { c.Cursors["c"] = Cursor{} },
		"cursor removed":  func(c *Chunk) { delete(c.Cursors, "a") },
		"fact":            func(c *Chunk) { c.Facts["k"] = "w" },
		"fact moved":      func(c *Chunk) { delete(c.Facts, "k"); c.Facts["kv"] = "" },
		"facts removed":   func(c *Chunk) { c.Facts = nil },
		"body":            func(c *Chunk) { c.Body[3] ^= 1 },
		"body cut":        func(c *Chunk) { c.Body = c.Body[:len(c.Body)-1] },
		"terminal":        func(c *Chunk) { c.Terminal = true },
		"hash":            func(c *Chunk) { c.SHA256[31] ^= 1 },
		"cursors as fact": func(c *Chunk) { c.Cursors, c.Facts = nil, map[string]string{"a": "i"} },
	}
	fields := reflect.TypeFor[Chunk]().NumField()
	if fields != 11 {
		t.Errorf("Chunk has %d fields: is the new one sealed?", fields)
	}
	for name, change := range changes {
		c := testChunk(t)
		change(&c)
		if err := c.Verify(); !errors.Is(err, ErrChunkHash) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The order of maps is not part of it, and neither is nil against empty.
	want := testChunk(t).SHA256
	for range 20 {
		if testChunk(t).SHA256 != want {
			t.Fatal("not deterministic")
		}
	}
	c, d := Chunk{RunID: "r"}, Chunk{RunID: "r", Cursors: map[string]Cursor{}, Facts: map[string]string{}}
	c.Seal()
	d.Seal()
	if c.SHA256 != d.SHA256 {
		t.Error("nil and empty maps differ")
	}
}

// TestSealIsStable: the seal is part of the storage format; a changed value here makes every stored log corrupt.
func TestSealIsStable(t *testing.T) {
	const want = "f00409daacc3cc7b02b0c1e2a1098be4d408695f4f3902566f61649b8f63b25a"
	if got := hexOf(testChunk(t).SHA256); got != want {
		t.Errorf("seal %s, want %s", got, want)
	}
}

func hexOf(b [32]byte) string {
	const digits = "0123456789abcdef"
	var s strings.Builder
	for _, c := range b {
		s.WriteByte(digits[c>>4])
		s.WriteByte(digits[c&15])
	}
	return s.String()
}

func TestNewChunkRefuses(t *testing.T) {
	x := Event{Data: TextDelta{MessageID: "m", Delta: "x"}}
	end := Event{Data: RunFinished{}}
	large := Event{Data: TextDelta{MessageID: "m", Delta: strings.Repeat("x", 64<<10)}}
	for name, tc := range map[string]struct {
		events []Event
		size   bool
	}{
		"nothing":             {nil, false},
		"too many":            {repeat(x, 257), true},
		"too large":           {repeat(large, 17), true},
		"terminal first":      {[]Event{end, x}, false},
		"event without data":  {[]Event{{}}, false},
		"terminal, too early": {[]Event{x, end, end}, false},
	} {
		if _, err := NewChunk(ChunkHeader{First: 1}, tc.events); err == nil || errors.Is(err, ErrChunkSize) != tc.size {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, err := NewChunk(ChunkHeader{First: 1}, append(repeat(x, 255), end))
	if err != nil || !c.Terminal || c.Last != 256 {
		t.Errorf("a full chunk: %v", err)
	}
}

func repeat(e Event, n int) []Event {
	out := make([]Event, n)
	for i := range out {
		out[i] = e
	}
	return out
}

func TestChunkEventsRefuses(t *testing.T) {
	for name, change := range map[string]func(c *Chunk){
		"first 0":         func(c *Chunk) { c.First, c.Last = 0, 1 },
		"empty range":     func(c *Chunk) { c.Last = c.First - 1 },
		"huge range":      func(c *Chunk) { c.Last = 1 << 60 },
		"too few":         func(c *Chunk) { c.Last++ },
		"too many":        func(c *Chunk) { c.Last-- },
		"no array":        func(c *Chunk) { c.Body = []byte(`{}`) },
		"empty array":     func(c *Chunk) { c.Body = []byte(`[]`) },
		"no body":         func(c *Chunk) { c.Body = nil },
		"trailing":        func(c *Chunk) { c.Body = append(c.Body, ' ', '1') },
		"cut":             func(c *Chunk) { c.Body = c.Body[:len(c.Body)-2] },
		"terminal marked": func(c *Chunk) { c.Terminal = true },
	} {
		c := testChunk(t)
		change(&c)
		if events, err := c.Events(); err == nil {
			t.Errorf("%s: %+v", name, events)
		}
	}
}

func TestFoldMessages(t *testing.T) {
	at := func(ns []string, d Data) Event { return Event{Namespace: ns, Data: d} }
	child := []string{"a"}
	got := FoldMessages([]Event{
		at(nil, TextDelta{MessageID: "before", Delta: "x"}),
		at(nil, TextStarted{MessageID: "1", Role: "assistant"}),
		at(nil, TextDelta{MessageID: "1", Delta: "Hel"}),
		at(nil, ReasoningStarted{MessageID: "r"}),
		at(nil, ReasoningDelta{MessageID: "r", Delta: "hm"}),
		at(child, TextStarted{MessageID: "c", Role: "assistant"}),
		at(child, TextDelta{MessageID: "c", Delta: "child"}),
		at(nil, TextStarted{MessageID: "2", Role: "assistant"}),
		at(nil, TextDelta{MessageID: "2", Delta: "second"}),
		at(nil, TextDelta{MessageID: "1", Delta: "lo"}),
		at(nil, TextFinished{MessageID: "1"}),
		at(nil, TextStarted{MessageID: "silent", Role: "assistant"}),
	})
	want := []FoldedMessage{{ID: "1", Role: "assistant", Text: "Hello"}, {ID: "2", Role: "assistant", Text: "second"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if FoldMessages(nil) != nil {
		t.Error("messages out of nothing")
	}
}
