package acp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/worker"
)

var rewrite = flag.Bool("update", false, "rewrite the expected events of the recordings")

// recorded is one line of a recording; testdata/record.mjs makes them.
type recorded struct {
	From    string          `json:"from"` // driver or agent
	Message json.RawMessage `json:"message"`
}

func readRecording(t testing.TB, path string) []recorded {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []recorded
	s := bufio.NewScanner(bytes.NewReader(raw))
	s.Buffer(nil, maxLine)
	for s.Scan() {
		var r recorded
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// replay plays the agent's side. Where the driver spoke in the recording, it has to say the same now.
func replay(t *testing.T, lines []recorded, p *program) {
	ids := map[string]json.RawMessage{}
	for _, l := range lines {
		var m message
		if err := json.Unmarshal(l.Message, &m); err != nil {
			t.Error(err)
			return
		}
		if l.From == "agent" {
			if m.kind() == kindResponse {
				m.ID = ids[string(m.ID)]
			}
			line, err := json.Marshal(m)
			if err != nil {
				t.Error(err)
				return
			}
			p.raw(string(line) + "\n")
			continue
		}
		got, ok := p.next()
		if !ok {
			return
		}
		if got.Method != m.Method {
			t.Errorf("the driver sent %s, recorded is %s", got.Method, m.Method)
			return
		}
		ids[string(m.ID)] = got.ID
	}
	for { // until the driver closes the agent's input
		if _, ok := p.next(); !ok {
			return
		}
	}
}

// TestRecordings replays what the real agent said and compares the events with those that are kept beside it.
func TestRecordings(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.ndjson"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".ndjson"), func(t *testing.T) {
			lines := readRecording(t, file)
			p := Own(fakeProfile())
			p.NoPlanPriority = true
			d, _ := opened(t, p, func(_ int, p *program) { replay(t, lines, p) })
			var got strings.Builder
			var before *recorder
			for i, l := range lines {
				var m struct {
					Method string
					Params struct {
						Prompt []promptBlock
						Meta   struct {
							Resume struct{ Decision harness.Decision } `json:"harness-engine/resume"`
						} `json:"_meta"`
					}
				}
				if l.From != "driver" || json.Unmarshal(l.Message, &m) != nil || m.Method != "session/prompt" {
					continue
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				text, r := "(decision)", newRecorder()
				var turn harness.Turn
				if len(m.Params.Prompt) > 0 {
					text = m.Params.Prompt[0].Text
					turn = turnOf(text)
				} else {
					r, turn = before.continuing(t), before.resume("run_1", "run_1", m.Params.Meta.Resume.Decision)
				}
				if cancelled(lines[i:]) {
					r.refuse = func(e event.Event) error {
						if e.Type() == event.TypeTextDelta {
							cancel(&worker.Cancelled{Reason: event.CancelClientRequest})
						}
						return nil
					}
				}
				if err := d.Turn(ctx, turn, r); err != nil {
					t.Fatal(err)
				}
				r.terminal(t)
				cancel(nil)
				before = r
				got.WriteString("> " + text + "\n" + strings.Join(r.shapes(), "\n") + "\n\n")
			}
			golden := strings.TrimSuffix(file, ".ndjson") + ".events"
			if *rewrite {
				if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != string(want) {
				t.Errorf("events of %s\n%s\nwant\n%s", file, got.String(), want)
			}
		})
	}
}

// cancelled reports whether the driver cancelled the prompt with which the lines begin.
func cancelled(lines []recorded) bool {
	for _, l := range lines[1:] {
		var m message
		if l.From == "driver" && json.Unmarshal(l.Message, &m) == nil {
			return m.Method == "session/cancel"
		}
	}
	return false
}
