package e2e

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
	"github.com/harness-engine/harness-engine/internal/fakemodel"
)

// TestWorkerNeverHasTheKey runs each real harness against a model that refuses every request without the key. The model
// gets it from the engine; no process beside the model-directed code has it in its arguments or its environment, and
// the client does not see it either.
func TestWorkerNeverHasTheKey(t *testing.T) {
	onEach(t, func(m manner) bool { return m.acts }, keepsKey)
}

func keepsKey(t *testing.T, m manner) {
	const key = "canary-5f1d0c7e"
	ctx := bounded(t)
	model := fakemodel.New(fakemodel.Options{APIKey: key})
	upstream := httptest.NewServer(model)
	defer upstream.Close()
	engine := ownEngine(t, "ANTHROPIC_API_KEY="+key, "OPENAI_API_KEY="+key, "ANTHROPIC_BASE_URL="+upstream.URL, "OPENAI_BASE_URL="+upstream.URL+"/v1")
	c := clientOf(t, engine)
	agent := newAgent(ctx, t, c, m.harness)
	r := start(ctx, t, c, agent.ID, "", "[[slow 200 25]] [[hang]]")
	seen := beforeKill(ctx, t, c, r.ID, 0, 5)

	family, err := engine.Family()
	if err != nil || len(family) < 2 {
		t.Fatalf("the worker's family is %v (%v), want the worker and its agent", family, err)
	}
	looked := 0
	for _, p := range family {
		for _, file := range []string{"environ", "cmdline"} {
			raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.PID, file))
			if err != nil {
				continue // not ours to read: then nobody else's either
			}
			looked++
			if bytes.Contains(raw, []byte(key)) {
				t.Errorf("process %d has the key in its %s", p.PID, file)
			}
		}
	}
	if looked < 2 {
		t.Fatalf("only %d files could be looked at", looked)
	}
	if _, err := c.Cancel(ctx, r.ID); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	rest, err := c.Follow(ctx, r.ID, enginetest.Last(seen).Sequence)
	if err != nil {
		t.Fatal(err)
	}
	if end := enginetest.Last(rest); end.Type != enginetest.RunCancelled {
		t.Fatalf("the run ended with %s after %s", end, time.Since(began))
	}
	for _, e := range append(seen, rest...) {
		if bytes.Contains([]byte(e.String()), []byte(key)) {
			t.Errorf("the key is in an event: %s", e)
		}
	}
	if n := len(model.Requests()); n == 0 {
		t.Fatal("the model was never asked, so this shows nothing")
	}
}
