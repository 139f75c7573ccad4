package driver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// bench is a real worker that plays scripts.
type bench struct {
	*worker.Client
	runs   int
	files  string // the workspace
	exits  chan int
	head   harness.Head // committed state, and its bytes
	packed []byte
	played []harness.SourceEvent // last
}

func newBench(t *testing.T, options string) *bench { return benchFrom(t, nil, options, "") }

// benchFrom is another worker of the conversation that before has served, or a first one.
func benchFrom(t *testing.T, before *bench, options string, approval harness.ApprovalPolicy) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &bench{exits: make(chan int, 1), files: dir}
	h, err := worker.NewHost(worker.HostOptions{
		Drivers:   map[string]func() worker.Driver{"scripted": func() worker.Driver { return New(Options{Exit: func(code int) { b.exits <- code }}) }},
		Workspace: dir, State: t.TempDir(), Scratch: t.TempDir(), Mark: t.Name(), Log: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	l, err := worker.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- worker.NewServer(h, "secret", quiet).Serve(l) }()
	t.Cleanup(func() { h.Stop(); <-served })
	o := worker.ClientOptions{Socket: socket, Secret: "secret", LeaseGen: 1, Binding: harness.Binding{SessionID: "ses_1", Epoch: 1, SandboxGen: 1}}
	if b.Client, err = worker.Dial(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	if before != nil {
		b.runs, b.head, b.packed, b.played = before.runs, before.head, before.packed, before.played
	}
	if b.head.Rev > 0 {
		err := b.Restore(t.Context(), harness.Snapshot{
			Head: b.head, Codec: worker.StateCodec, Size: int64(len(b.packed)),
			Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.packed)), nil },
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	c := harness.Construction{Harness: "scripted", Approval: approval}
	if options != "" {
		c.Options = json.RawMessage(options)
	}
	if err := b.Bind(t.Context(), worker.BindRequest{Construction: &c}); err != nil {
		t.Fatal(err)
	}
	return b
}

// play plays a message to its end.
func (b *bench) play(t *testing.T, text string) []harness.SourceEvent {
	t.Helper()
	return b.turn(t, harness.Turn{Text: text})
}

// turn runs a turn to its end and commits its state, as an engine does.
func (b *bench) turn(t *testing.T, turn harness.Turn) []harness.SourceEvent {
	t.Helper()
	run := b.start(t, turn)
	out := b.read(t, run)
	b.commit(t, run)
	b.played = out
	return out
}

func (b *bench) start(t *testing.T, turn harness.Turn) string {
	t.Helper()
	b.runs++
	turn.RunID, turn.Head = fmt.Sprint("run_", b.runs), b.head
	if err := b.StartTurn(t.Context(), turn); err != nil {
		t.Fatal(err)
	}
	return turn.RunID
}

func (b *bench) commit(t *testing.T, run string) {
	t.Helper()
	s, err := b.State(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Body.Close()
	if b.packed, err = io.ReadAll(s.Body); err != nil {
		t.Fatal(err)
	}
	b.head = harness.Head{Rev: b.head.Rev + 1, Hash: s.Hash}
	if err := b.Commit(t.Context(), run, b.head); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) read(t *testing.T, run string) []harness.SourceEvent {
	t.Helper()
	s, err := b.Events(t.Context(), run, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var out []harness.SourceEvent
	for {
		e, err := s.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
}

// show writes events one a line: type and data.
func show(steps []harness.SourceEvent) string {
	var b strings.Builder
	for _, s := range steps {
		for _, e := range s.Events {
			raw, _ := json.Marshal(e.Data)
			fmt.Fprintf(&b, "%s %s\n", e.Type(), raw)
		}
	}
	return b.String()
}

func TestScripts(t *testing.T) {
	const end = `run.finished {"outcome":"success","stopReason":"end_turn","thread":{"durability":"LOCAL"}}` + "\n"
	cases := []struct{ name, script, want string }{
		{"echo", "two words", `text.started {"messageId":"run_1.m1","role":"assistant"}
text.delta {"messageId":"run_1.m1","delta":"two "}
text.delta {"messageId":"run_1.m1","delta":"words"}
text.finished {"messageId":"run_1.m1"}
` + end},
		{"echo of nothing", "", `text.started {"messageId":"run_1.m1","role":"assistant"}
text.finished {"messageId":"run_1.m1"}
` + end},
		{"echo of numbers", "[1,2]", `text.started {"messageId":"run_1.m1","role":"assistant"}
text.delta {"messageId":"run_1.m1","delta":"[1,2]"}
text.finished {"messageId":"run_1.m1"}
` + end},
		{"chunks of characters", `{"text":{"value":"aäö€b","chunk":2}}`, `text.started {"messageId":"run_1.m1","role":"assistant"}
text.delta {"messageId":"run_1.m1","delta":"aä"}
text.delta {"messageId":"run_1.m1","delta":"ö€"}
text.delta {"messageId":"run_1.m1","delta":"b"}
text.finished {"messageId":"run_1.m1"}
` + end},
		{"lines", "{\"reasoning\":\"hm\"}\n\n  {\"text\":\"ha\"}\n", `reasoning.started {"messageId":"run_1.r1"}
reasoning.delta {"messageId":"run_1.r1","delta":"hm"}
reasoning.finished {"messageId":"run_1.r1"}
text.started {"messageId":"run_1.m2","role":"assistant"}
text.delta {"messageId":"run_1.m2","delta":"ha"}
text.finished {"messageId":"run_1.m2"}
` + end},
		{"tool", `[{"tool":{"name":"look","kind":"read","title":"Look","arguments":{"at":"x"},"result":"seen"}}]`,
			`tool.started {"toolCallId":"run_1.t1","name":"look","kind":"read","title":"Look","arguments":{"at":"x"}}
tool.finished {"toolCallId":"run_1.t1","result":"seen"}
` + end},
		{"tool that fails, with streamed arguments", `[{"tool":{"id":"mine","name":"look","arguments":{"at":"a b"},"stream":true,"error":{"code":"gone","message":"No.","retryable":true}}}]`,
			`tool.started {"toolCallId":"mine","name":"look"}
tool.arguments.delta {"toolCallId":"mine","delta":"{\"at\":\"a "}
tool.arguments.delta {"toolCallId":"mine","delta":"b\"}"}
tool.error {"toolCallId":"mine","code":"gone","message":"No.","retryable":true}
` + end},
		{"the rest", `[{"plan":[{"content":"a","status":"pending","priority":"high"}]},{"usage":{"input":1,"output":2,"cost":0.5,"currency":"USD","final":true}},
			{"warning":{"code":"w","message":"m","details":{"n":1}}},{"delay_ms":1},{"finish":"max_tokens"},{"text":"never"}]`,
			`plan.updated {"entries":[{"content":"a","status":"pending","priority":"high"}]}
usage.updated {"inputTokens":1,"outputTokens":2,"cost":0.5,"currency":"USD","final":true}
warning {"code":"w","message":"m","details":{"n":1}}
run.finished {"outcome":"success","stopReason":"max_tokens","thread":{"durability":"LOCAL"}}
`},
		{"error", `[{"text":"x"},{"error":{"category":"throttled","code":"slow_down","message":"Later.","retryable":true,"retry_after_ms":5}},{"text":"never"}]`,
			`text.started {"messageId":"run_1.m1","role":"assistant"}
text.delta {"messageId":"run_1.m1","delta":"x"}
text.finished {"messageId":"run_1.m1"}
run.error {"code":"slow_down","message":"Later.","category":"throttled","retryable":true,"retryAfterMs":5,"sideEffects":"none","thread":{"durability":"LOCAL"}}
`},
		{"repeat", `[{"repeat":{"times":2,"steps":[{"repeat":{"times":2,"steps":[{"warning":{"code":"w","message":"m"}}]}}]}}]`,
			strings.Repeat("warning {\"code\":\"w\",\"message\":\"m\"}\n", 4) + end},
		{"unsafe text is made safe", `{"text":{"value":"a\u0000b","chunk":9}}`, `text.started {"messageId":"run_1.m1","role":"assistant"}
text.delta {"messageId":"run_1.m1","delta":"a` + "\u2400" + `b"}
text.finished {"messageId":"run_1.m1"}
` + end},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if got := show(newBench(t, "").play(t, tc.script)); got != tc.want {
				t.Fatalf("got\n%swant\n%s", got, tc.want)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	b := newBench(t, `{"steps":[{"text":"from options"}],"chunk":4,"every_ms":1}`)
	if got := texts(b.play(t, "anything"), "|"); got != "from| opt|ions" {
		t.Fatalf("got %q", got)
	}
	if got := texts(b.play(t, `{"text":"own script"}`), "|"); got != "own |scri|pt" {
		t.Fatalf("got %q", got)
	}
}

// TestUntil: what waits for a file comes when the file is there and not before; everything in front of it does.
func TestUntil(t *testing.T) {
	for script, before := range map[string]event.Type{
		`{"text":{"value":"a b c","until":"go.on"}}`:         event.TypeTextDelta,
		`{"reasoning":{"value":"a b c","until":"go.on"}}`:    event.TypeReasoningDelta,
		`{"tool":{"name":"x","until":"go.on","result":"y"}}`: event.TypeToolStarted,
	} {
		b := newBench(t, "")
		run := b.start(t, harness.Turn{Text: script})
		s, err := b.Events(t.Context(), run, 0)
		if err != nil {
			t.Fatal(err)
		}
		deltas, opened := 0, false
		for {
			e, err := s.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range e.Events {
				if e.Type() == before {
					deltas++
				}
			}
			if want := map[bool]int{true: 2, false: 1}[before != event.TypeToolStarted]; deltas == want && !opened {
				late, stop := context.WithTimeout(t.Context(), 5*lookMs*time.Millisecond)
				if e, err := s.Next(late); err == nil {
					t.Errorf("%s: %+v came before the file", script, e)
				}
				stop()
				s.Close()
				if s, err = b.Events(t.Context(), run, e.Seq); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(b.files, "go.on"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
				opened = true
			}
		}
		s.Close()
		if !opened {
			t.Errorf("%s: nothing was waited for", script)
		}
		b.commit(t, run)
	}
}

func texts(steps []harness.SourceEvent, between string) string {
	var parts []string
	for _, s := range steps {
		for _, e := range s.Events {
			if d, ok := e.Data.(event.TextDelta); ok {
				parts = append(parts, d.Delta)
			}
		}
	}
	return strings.Join(parts, between)
}

func TestFacts(t *testing.T) {
	steps := newBench(t, "").play(t, `{"facts":{"native":"id"}}`)
	if len(steps) != 2 || steps[0].Facts["native"] != "id" || len(steps[0].Events) != 0 {
		t.Fatalf("got %+v", steps)
	}
}

// TestGarbage: every kind ends its run as the table says, and the worker is fit for the next one.
func TestGarbage(t *testing.T) {
	b := newBench(t, "")
	special := map[string]string{
		"after_terminal": "run.finished", "no_terminal": "terminal_missing", "driver_error": "driver_failed", "driver_panic": "driver_failed",
	}
	for _, kind := range slices.Sorted(maps.Keys(garbage)) {
		t.Run(kind, func(t *testing.T) {
			steps := b.play(t, fmt.Sprintf(`[{"text":"before"},{"garbage":%q},{"text":"never"}]`, kind))
			want := special[kind]
			if want == "" {
				want = event.CodeEventInvalid
			}
			lastStep := steps[len(steps)-1].Events
			got := string(lastStep[len(lastStep)-1].Type())
			if e, ok := lastStep[len(lastStep)-1].Data.(event.RunError); ok {
				got = e.Code
			}
			if got != want {
				t.Fatalf("ended as %s, want %s", got, want)
			}
			all := show(steps)
			if !strings.Contains(all, "before") || strings.Contains(all, "never") || strings.Contains(all, "secret") {
				t.Fatalf("got\n%s", all)
			}
		})
	}
}

// TestScriptsAreDocumented keeps docs/scripted.md complete.
func TestScriptsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "scripted.md"))
	if err != nil {
		t.Fatal(err)
	}
	words := slices.Collect(maps.Keys(garbage))
	for i := range reflect.TypeFor[step]().NumField() {
		words = append(words, strings.TrimSuffix(reflect.TypeFor[step]().Field(i).Tag.Get("json"), ",omitempty"))
	}
	for _, word := range words {
		if !strings.Contains(string(doc), "`"+word+"`") {
			t.Errorf("%s is missing", word)
		}
	}
}

// TestInvalidScripts: a message that is a script, but a wrong one, is told what is wrong with it, by field.
func TestInvalidScripts(t *testing.T) {
	b := newBench(t, "")
	for script, want := range map[string]string{
		`{"foo":1}`: `step 1: "foo" is unknown`,
		`[{"text":"a"},{"text":"b","delay_ms":1}]`: "step 2: must have exactly one key, has 2",
		`{}`:                                "step 1: must have exactly one key, has 0",
		`{"text":7}`:                        "step 1",
		`{"text":{"value":"a","more":1}}`:   `"more" is unknown`,
		`{"text":{"value":"a","chunk":-1}}`: "text.chunk",
		`{"delay_ms":600001}`:               "delay_ms",
		`{"delay_ms":-1}`:                   "delay_ms",
		`{"tool":{"name":"x"}}`:             "either a result or an error",
		`{"tool":{"result":"x"}}`:           "tool.name",
		`{"tool":{"name":"x","result":"y","arguments":[1]}}`: "tool.arguments",
		`{"garbage":"mine"}`:          "garbage",
		`{"approval":{"calls":[]}}`:   "approval.calls",
		`{"approval":{"calls":[{}]}}`: "approval.calls.0.name",
		`{"approval":{"calls":[{"name":"a","id":"i"},{"name":"b","id":"i"}]}}`:            "approval.calls.1.id",
		`{"approval":{"calls":[{"name":"a","arguments":[]}]}}`:                            "approval.calls.0.arguments",
		`{"approval":{"calls":[{"name":"a","allowed":["no"]}]}}`:                          "approval.calls.0.allowed",
		`{"approval":{"calls":[{"name":"a","more":1}]}}`:                                  `"more" is unknown`,
		`{"form":{"fields":[]}}`:                                                          "form.fields",
		`{"form":{"fields":[{"name":"a","kind":"date"}]}}`:                                "form.fields.0.kind",
		`{"form":{"fields":[{"name":"a","kind":"string"},{"name":"a","kind":"string"}]}}`: "form.fields.1.name",
		`{"snapshot_fail":false}`:                                                         "must be true",
		`{"hang_before_end":5001}`:                                                        "hang_before_end",
		`{"text":{"value":"a","until":"../a"}}`:                                           "text.until",
		`{"tool":{"name":"a","until":"/etc/passwd","result":"x"}}`:                        "tool.until",
		`{"hang":false}`:                    "must be true",
		`{"exit":256}`:                      "exit",
		`{"repeat":{"times":0,"steps":[]}}`: "repeat.times",
		`{"repeat":{"times":1000000,"steps":[{"hang":true},{"hang":true}]}}`:           "plays more than 1000000",
		strings.Repeat(`{"repeat":{"times":2,"steps":[`, 6) + strings.Repeat(`]}}`, 6): "nested deeper than 4",
		"[" + strings.Repeat(`{"text":"x"},`, MaxSteps) + `{"text":"x"}]`:              "more than 1000 steps",
	} {
		steps := b.play(t, script)
		events := steps[len(steps)-1].Events
		got, ok := events[len(events)-1].Data.(event.RunError)
		if !ok || got.Code != "script_invalid" || got.Category != event.CategoryConfiguration || !strings.Contains(got.Message, want) {
			t.Errorf("%.60s: got %+v, want %q", script, got, want)
		}
	}
}

func TestInvalidOptions(t *testing.T) {
	for _, options := range []string{`{"more":1}`, `{"chunk":-1}`, `{"every_ms":-1}`, `{"steps":[{}]}`, `[]`} {
		d := New(Options{})
		err := d.Open(t.Context(), worker.Environment{State: t.TempDir()}, harness.Construction{Options: json.RawMessage(options)})
		f := new(worker.Failure)
		if !errors.As(err, &f) || f.Category != event.CategoryConfiguration {
			t.Errorf("%s: %v", options, err)
		}
	}
}

func TestHangIsCancelled(t *testing.T) {
	b := newBench(t, "")
	for _, script := range []string{`{"hang":true}`, `{"delay_ms":600000}`, `{"repeat":{"times":1000000,"steps":[{"delay_ms":1}]}}`, `{"tool":{"name":"x","ms":600000,"result":"y"}}`, `{"text":{"value":"x","until":"never"}}`} {
		run := b.start(t, harness.Turn{Text: script})
		if err := b.Cancel(t.Context(), run, event.CancelClientRequest); err != nil {
			t.Fatal(err)
		}
		steps := b.read(t, run)
		b.commit(t, run)
		events := steps[len(steps)-1].Events
		if got := events[len(events)-1].Type(); got != event.TypeRunCancelled {
			t.Errorf("%s ended as %s", script, got)
		}
	}
}

func TestExit(t *testing.T) {
	b := newBench(t, "")
	b.play(t, `{"exit":7}`)
	if code := <-b.exits; code != 7 {
		t.Fatalf("code %d", code)
	}
}

func TestMemory(t *testing.T) {
	b := newBench(t, "")
	b.play(t, "first thing")
	b = benchFrom(t, b, "", "")
	if got := texts(b.play(t, `{"recall":true}`), ""); got != "I remember 1 message:\n1. first thing" {
		t.Fatalf("got %q", got)
	}
	if got := texts(b.play(t, `[{"recall":true}]`), ""); got != "I remember 2 messages:\n1. first thing\n2. {\"recall\":true}" {
		t.Fatalf("got %q", got)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	dir := t.TempDir()
	m, err := openMemory(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxTurns + 5 {
		if err := m.add(fmt.Sprint(i, " ", strings.Repeat("ä", maxTurnBytes))); err != nil {
			t.Fatal(err)
		}
	}
	m, err = openMemory(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.turns) != maxTurns || !strings.HasPrefix(m.turns[0], "5 ") || len(m.turns[0]) > maxTurnBytes+3 || !strings.HasSuffix(m.turns[0], "ä…") {
		t.Fatalf("%d turns, first %.10q… of %d bytes", len(m.turns), m.turns[0], len(m.turns[0]))
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Fatalf("left behind: %v %v", left, err)
	}
}

func TestMemoryThatCannotBeRead(t *testing.T) {
	for name, content := range map[string]string{"cut": `{"version":1,"tur`, "other version": `{"version":2,"turns":[]}`, "empty": ""} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "turns.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		err := New(Options{}).Open(context.Background(), worker.Environment{State: dir}, harness.Construction{})
		f := new(worker.Failure)
		if !errors.As(err, &f) || f.Category != event.CategoryPersistence {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzParse: no message makes the parser fail, and what it takes for a script it can play.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"hello", "[1]", `{"text":"x"}`, `[{"repeat":{"times":2,"steps":[{"hang":true}]}}]`, "{\"text\":\"x\"}\n{\"finish\":\"refusal\"}",
		`{"tool":{"name":"x","arguments":{},"result":"y"}}`, `[{}]`, "[", "{",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		steps, ok, err := parse(text)
		if !ok && (err != nil || steps != nil) {
			t.Fatalf("not a script, with %v %v", steps, err)
		}
		if ok && err == nil && len(steps) == 0 {
			t.Fatal("a script without steps")
		}
	})
}
