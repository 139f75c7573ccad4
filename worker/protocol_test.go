package worker

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
)

// raw makes one call without the client, with the right headers but for the given changes; "" removes one.

func (w *testWorker) raw(t *testing.T, method, path, body string, headers map[string]string) (*http.Response, Error) {
	t.Helper()
	h := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", w.socket)
		},
	}}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://worker"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{
		headerProtocol: "1", headerSecret: testSecret, headerSession: "ses_1", headerEpoch: "1", headerSandboxGen: "1", headerLeaseGen: "1",
	}
	for k, v := range headers {
		all[k] = v
	}
	for k, v := range all {
		if v != "" {
			req.Header.Set(k, v)
		}
	}
	resp, err := h.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var e Error
	if resp.StatusCode != http.StatusOK {
		if err := json.Unmarshal(answer, &e); err != nil {
			t.Fatalf("answer %q: %v", answer, err)
		}
	}
	return resp, e
}

func TestReady(t *testing.T) {
	w := newWorker(t, &testDriver{turn: untilCancelled})
	c := w.dial(t)
	r, err := c.Ready(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r.Bound != nil || r.ActiveRun != "" || len(r.Harnesses) != 1 || r.Harnesses[0] != "test" || r.Instance != c.Instance() {
		t.Fatalf("got %+v", r)
	}
	if err := c.Bind(t.Context(), bindRequest()); err != nil {
		t.Fatal(err)
	}
	startTurn(t, c, "run_1", "x")
	if r, err = c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.Bound == nil || *r.Bound != (Bound{Binding: testBinding, LeaseGen: 1, Harness: "test"}) || r.ActiveRun != "run_1" {
		t.Fatalf("got %+v", r)
	}
}

// TestBadCalls: every boundary refuses with a clear error, and nothing happens.

func TestBadCalls(t *testing.T) {
	turns := make(chan string, 100)
	w := newWorker(t, &testDriver{turn: func(ctx context.Context, turn harness.Turn, s Sink) error {
		turns <- turn.RunID
		return untilCancelled(ctx, turn, s)
	}})
	w.bound(t)
	turn := `{"runId":"run_1","text":"x","capability":"c","deadlineMs":0}`
	long := func(n int) string { return strings.Repeat("x", n) }
	file := func(n int) string {
		return `{"name":"a","mediaType":"text/plain","data":"` + base64.StdEncoding.EncodeToString(make([]byte, n)) + `"}`
	}
	resume := func(decision string) string {
		return `{"runId":"run_0","interruptId":"int_0","revision":1,"decision":{` + decision + `},"inherit":{}}`
	}
	stateHeaders := func(change map[string]string) map[string]string {
		h := map[string]string{headerHeadRev: "1", headerStateHash: strings.Repeat("0", 64), headerStateCodec: StateCodec}
		maps.Copy(h, change)
		return h
	}
	cases := []struct {
		name, method, path, body string
		headers                  map[string]string
		status                   int
		code                     Code
		field                    string
	}{
		{"no secret", "GET", "/v1/ready", "", map[string]string{headerSecret: ""}, 401, CodeUnauthorized, ""},
		{"wrong secret", "GET", "/v1/ready", "", map[string]string{headerSecret: testSecret + "x"}, 401, CodeUnauthorized, ""},
		{"wrong secret, unknown path", "GET", "/v1/none", "", map[string]string{headerSecret: "x"}, 401, CodeUnauthorized, ""},
		{"no version", "GET", "/v1/ready", "", map[string]string{headerProtocol: ""}, 400, CodeUnsupported, headerProtocol},
		{"later version", "GET", "/v1/ready", "", map[string]string{headerProtocol: "2"}, 400, CodeUnsupported, headerProtocol},
		{"unknown path", "GET", "/v1/none", "", nil, 404, CodeNotFound, ""},
		{"wrong method", "GET", "/v1/runs", "", nil, 404, CodeNotFound, ""},
		{"no session", "POST", "/v1/runs", turn, map[string]string{headerSession: ""}, 400, CodeBadRequest, headerSession},
		{"session with a slash", "POST", "/v1/runs", turn, map[string]string{headerSession: "a/b"}, 400, CodeBadRequest, headerSession},
		{"epoch in words", "POST", "/v1/runs", turn, map[string]string{headerEpoch: "one"}, 400, CodeBadRequest, headerEpoch},
		{"epoch too large", "POST", "/v1/runs", turn, map[string]string{headerEpoch: "9223372036854775808"}, 400, CodeBadRequest, headerEpoch},
		{"no lease", "POST", "/v1/runs", turn, map[string]string{headerLeaseGen: ""}, 400, CodeBadRequest, headerLeaseGen},
		{"lease 0", "POST", "/v1/runs", turn, map[string]string{headerLeaseGen: "0"}, 400, CodeBadRequest, headerLeaseGen},
		{"other session", "POST", "/v1/runs", turn, map[string]string{headerSession: "ses_2"}, 409, CodeWrongBinding, ""},
		{"other epoch", "POST", "/v1/runs", turn, map[string]string{headerEpoch: "2"}, 409, CodeWrongBinding, ""},
		{"other sandbox generation", "POST", "/v1/runs", turn, map[string]string{headerSandboxGen: "2"}, 409, CodeWrongGeneration, ""},
		{"empty body", "POST", "/v1/runs", "", nil, 400, CodeBadRequest, ""},
		{"cut body", "POST", "/v1/runs", `{"runId":`, nil, 400, CodeBadRequest, ""},
		{"two values", "POST", "/v1/runs", turn + turn, nil, 400, CodeBadRequest, ""},
		{"array", "POST", "/v1/runs", "[]", nil, 400, CodeBadRequest, ""},
		{"unknown field", "POST", "/v1/runs", `{"runId":"run_1","more":1}`, nil, 400, CodeBadRequest, ""},
		{"wrong type", "POST", "/v1/runs", `{"runId":"run_1","text":7}`, nil, 400, CodeBadRequest, "text"},
		{"deep nesting", "POST", "/v1/runs", strings.Repeat("[", 100_000), nil, 400, CodeBadRequest, ""},
		{"too large", "POST", "/v1/runs", `{"text":"` + long(maxTurnBody) + `"}`, nil, 413, CodeTooLarge, ""},
		{"too long a text", "POST", "/v1/runs", `{"runId":"run_1","text":"` + long(MaxTextBytes+1) + `"}`, nil, 400, CodeBadRequest, "text"},
		{"bind: too large", "POST", "/v1/bind", `{"brokerSocket":"` + long(maxBody) + `"}`, nil, 413, CodeTooLarge, ""},
		{"head without a hash", "POST", "/v1/runs", `{"runId":"run_1","head":{"rev":1}}`, nil, 400, CodeBadRequest, "head.hash"},
		{"head that is no hash", "POST", "/v1/runs", `{"runId":"run_1","head":{"rev":1,"hash":"../x"}}`, nil, 400, CodeBadRequest, "head.hash"},
		{"negative head", "POST", "/v1/runs", `{"runId":"run_1","head":{"rev":-1}}`, nil, 400, CodeBadRequest, "head.rev"},
		{"file without a name", "POST", "/v1/runs", `{"runId":"run_1","files":[{"mediaType":"text/plain","data":""}]}`, nil, 400, CodeBadRequest, "files.0.name"},
		{"file name with a newline", "POST", "/v1/runs", `{"runId":"run_1","files":[{"name":"a\nb","mediaType":"text/plain","data":""}]}`, nil, 400, CodeBadRequest, "files.0.name"},
		{"file without a type", "POST", "/v1/runs", `{"runId":"run_1","files":[{"name":"a","data":""}]}`, nil, 400, CodeBadRequest, "files.0.mediaType"},
		{"file that is not base64", "POST", "/v1/runs", `{"runId":"run_1","files":[{"name":"a","mediaType":"text/plain","data":"?"}]}`, nil, 400, CodeBadRequest, ""},
		{"files too large", "POST", "/v1/runs", `{"runId":"run_1","files":[` + file(6<<20) + `,` + file(6<<20) + `]}`, nil, 400, CodeBadRequest, "files.1.data"},
		{"too many files", "POST", "/v1/runs", `{"runId":"run_1","files":[` + strings.Repeat(file(1)+`,`, MaxFiles) + file(1) + `]}`, nil, 400, CodeBadRequest, "files"},
		{"resume with a message", "POST", "/v1/runs", `{"runId":"run_1","text":"x","resume":` + resume(`"form":{}`) + `}`, nil, 400, CodeBadRequest, "resume"},
		{"resume of another interrupt", "POST", "/v1/runs", `{"runId":"run_1","resume":` + strings.Replace(resume(`"form":{}`), "int_0", "int_1", 1) + `}`, nil, 400, CodeBadRequest, "resume.interruptId"},
		{"resume of another revision", "POST", "/v1/runs", `{"runId":"run_1","resume":` + strings.Replace(resume(`"form":{}`), `"revision":1`, `"revision":2`, 1) + `}`, nil, 400, CodeBadRequest, "resume.revision"},
		{"resume without a decision", "POST", "/v1/runs", `{"runId":"run_1","resume":` + resume(``) + `}`, nil, 400, CodeBadRequest, "resume.decision"},
		{"form that is no object", "POST", "/v1/runs", `{"runId":"run_1","resume":` + resume(`"form":[]`) + `}`, nil, 400, CodeBadRequest, "resume.decision.form"},
		{"unknown verdict", "POST", "/v1/runs", `{"runId":"run_1","resume":` + resume(`"calls":[{"toolCallId":"t","verdict":"maybe"}]`) + `}`, nil, 400, CodeBadRequest, "resume.decision.calls.0.verdict"},
		{"edit without arguments", "POST", "/v1/runs", `{"runId":"run_1","resume":` + resume(`"calls":[{"toolCallId":"t","verdict":"edit"}]`) + `}`, nil, 400, CodeBadRequest, "resume.decision.calls.0.arguments"},
		{"approval with arguments", "POST", "/v1/runs", `{"runId":"run_1","resume":` + resume(`"calls":[{"toolCallId":"t","verdict":"approve","arguments":{}}]`) + `}`, nil, 400, CodeBadRequest, "resume.decision.calls.0.arguments"},
		{"a call twice", "POST", "/v1/runs", `{"runId":"run_1","resume":` + resume(`"calls":[{"toolCallId":"t","verdict":"approve"},{"toolCallId":"t","verdict":"reject"}]`) + `}`, nil, 400, CodeBadRequest, "resume.decision.calls.1.toolCallId"},
		{"inheritance that cannot be", "POST", "/v1/runs", `{"runId":"run_1","resume":` + strings.Replace(resume(`"form":{}`), `"inherit":{}`, `"inherit":{"tools":[{"id":"t","namespace":["x"]}]}`, 1) + `}`, nil, 400, CodeBadRequest, "resume.inherit"},
		{"state of an unknown run", "GET", "/v1/runs/run_9/state", "", nil, 404, CodeUnknownRun, ""},
		{"commit of an unknown run", "POST", "/v1/runs/run_9/commit", `{"head":{"rev":1,"hash":"` + strings.Repeat("0", 64) + `"}}`, nil, 404, CodeUnknownRun, ""},
		{"commit of nothing", "POST", "/v1/runs/run_9/commit", `{"head":{"rev":0}}`, nil, 400, CodeBadRequest, "head.rev"},
		{"restore on a bound worker", "PUT", "/v1/state", "x", stateHeaders(nil), 409, CodeConflict, ""},
		{"restore without a revision", "PUT", "/v1/state", "x", stateHeaders(map[string]string{headerHeadRev: ""}), 400, CodeBadRequest, headerHeadRev},
		{"restore without a hash", "PUT", "/v1/state", "x", stateHeaders(map[string]string{headerStateHash: ""}), 400, CodeBadRequest, "head.hash"},
		{"restore of another codec", "PUT", "/v1/state", "x", stateHeaders(map[string]string{headerStateCodec: "zip"}), 400, CodeBadRequest, headerStateCodec},
		{"no run id", "POST", "/v1/runs", `{"text":"x"}`, nil, 400, CodeBadRequest, "runId"},
		{"run id that climbs", "POST", "/v1/runs", `{"runId":"../x"}`, nil, 400, CodeBadRequest, "runId"},
		{"capability with a newline", "POST", "/v1/runs", `{"runId":"run_1","capability":"a\nb"}`, nil, 400, CodeBadRequest, "capability"},
		{"negative deadline", "POST", "/v1/runs", `{"runId":"run_1","deadlineMs":-1}`, nil, 400, CodeBadRequest, "deadlineMs"},
		{"endless deadline", "POST", "/v1/runs", `{"runId":"run_1","deadlineMs":9223372036854775807}`, nil, 400, CodeBadRequest, "deadlineMs"},
		{"no after", "GET", "/v1/runs/run_9/events", "", nil, 400, CodeBadRequest, "after"},
		{"negative after", "GET", "/v1/runs/run_9/events?after=-1", "", nil, 400, CodeBadRequest, "after"},
		{"two afters", "GET", "/v1/runs/run_9/events?after=1&after=2", "", nil, 400, CodeBadRequest, "after"},
		{"other parameter", "GET", "/v1/runs/run_9/events?after=1&x=2", "", nil, 400, CodeBadRequest, "after"},
		{"events of an unknown run", "GET", "/v1/runs/run_9/events?after=0", "", nil, 404, CodeUnknownRun, ""},
		{"cancel of an unknown run", "POST", "/v1/runs/run_9/cancel", `{"reason":"shutdown"}`, nil, 404, CodeUnknownRun, ""},
		{"unknown reason", "POST", "/v1/runs/run_9/cancel", `{"reason":"boredom"}`, nil, 400, CodeBadRequest, "reason"},
		{"ack of an unknown run", "POST", "/v1/runs/run_9/ack", `{"seq":1}`, nil, 404, CodeUnknownRun, ""},
		{"negative ack", "POST", "/v1/runs/run_9/ack", `{"seq":-1}`, nil, 400, CodeBadRequest, "seq"},
		{"ack with a large body", "POST", "/v1/runs/run_9/ack", `{"seq":1` + strings.Repeat(" ", maxSmallBody) + `}`, nil, 413, CodeTooLarge, ""},
		{"bind: unknown harness", "POST", "/v1/bind", `{"construction":{"harness":"other"},"limits":{}}`, nil, 409, CodeConflict, ""},
		{"bind: bad harness", "POST", "/v1/bind", `{"construction":{"harness":"O"},"limits":{}}`, nil, 400, CodeBadRequest, "construction.harness"},
		{"bind: unknown approval policy", "POST", "/v1/bind", `{"construction":{"harness":"test","approval":"MAYBE"},"limits":{}}`, nil, 400, CodeBadRequest, "construction.approval"},
		{"bind: relative broker", "POST", "/v1/bind", `{"brokerSocket":"x","limits":{}}`, nil, 400, CodeBadRequest, "brokerSocket"},
		{"bind: tiny journal", "POST", "/v1/bind", `{"limits":{"journalBytes":1}}`, nil, 400, CodeBadRequest, "limits.journalBytes"},
		{"bind: options too long", "POST", "/v1/bind", `{"construction":{"harness":"test","options":"` + long(harness.MaxOptionsBytes) + `"},"limits":{}}`, nil, 400, CodeBadRequest, "construction.options"},
		{"bind: prompt too long", "POST", "/v1/bind", `{"construction":{"harness":"test","systemPrompt":"` + long(MaxPromptBytes+1) + `"},"limits":{}}`, nil, 400, CodeBadRequest, "construction.systemPrompt"},
		{"bind: other construction", "POST", "/v1/bind", `{"construction":{"harness":"test"},"limits":{}}`, nil, 409, CodeConflict, ""},
		{"shutdown by another", "POST", "/v1/shutdown", "{}", map[string]string{headerSession: "ses_2"}, 409, CodeWrongBinding, ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			resp, e := w.raw(t, tc.method, tc.path, tc.body, tc.headers)
			if resp.StatusCode != tc.status || e.Code != tc.code || e.Field != tc.field || e.Message == "" {
				t.Fatalf("got %d %+v, want %d %s %s", resp.StatusCode, e, tc.status, tc.code, tc.field)
			}
			if len(e.Message) > 300 || strings.Contains(e.Message, "xxxx") {
				t.Fatalf("the message repeats the input: %.400s", e.Message)
			}
			if tc.code == CodeUnauthorized && resp.Header.Get(headerInstance) != "" {
				t.Fatal("a stranger is told the instance")
			}
		})
	}
	select {
	case run := <-turns:
		t.Fatalf("a bad call started run %s", run)
	default:
	}
}

func TestErrorsOfTheClient(t *testing.T) {
	w := newWorker(t, &testDriver{turn: echo})
	c := w.dial(t)
	turn := harness.Turn{RunID: "run_1", Text: "x"}
	if err := c.StartTurn(t.Context(), turn); !errors.Is(err, harness.ErrGone) {
		t.Errorf("start on an unbound worker: %v, want ErrGone", err)
	}
	if err := c.Attach(t.Context(), ""); !errors.Is(err, harness.ErrGone) {
		t.Errorf("attach to an unbound worker: %v, want ErrGone", err)
	}
	if err := c.Bind(t.Context(), bindRequest()); err != nil {
		t.Fatal(err)
	}
	other := w.dial(t, func(o *ClientOptions) { o.Binding.SandboxGen = 2 })
	if err := other.StartTurn(t.Context(), turn); !errors.Is(err, harness.ErrConflict) {
		t.Errorf("other generation: %v, want ErrConflict", err)
	}
	if err := c.Cancel(t.Context(), "run_9", event.CancelShutdown); !errors.Is(err, harness.ErrUnknownRun) {
		t.Errorf("cancel: %v, want ErrUnknownRun", err)
	}
	if _, err := c.Events(t.Context(), "run_9", 0); !errors.Is(err, harness.ErrUnknownRun) {
		t.Errorf("events: %v, want ErrUnknownRun", err)
	}
	startTurn(t, c, "run_1", "x")
	drain(t, c, "run_1", 0)
	if err := c.StartTurn(t.Context(), harness.Turn{RunID: "run_1", Text: "other"}); !errors.Is(err, harness.ErrConflict) {
		t.Errorf("other request: %v, want ErrConflict", err)
	}
	for _, after := range []int64{5, 1 << 60} {
		if _, err := c.Events(t.Context(), "run_1", after); !errors.Is(err, harness.ErrGone) {
			t.Errorf("events after %d: %v, want ErrGone", after, err)
		}
	}
	if err := c.Ack(t.Context(), "run_1", 5); !errors.Is(err, harness.ErrGone) {
		t.Errorf("ack above the tail: %v, want ErrGone", err)
	}
	if err := c.Ack(t.Context(), "run_1", 2); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Events(t.Context(), "run_1", 1); !errors.Is(err, harness.ErrGone) {
		t.Errorf("events below the floor: %v, want ErrGone", err)
	}
	if got := show(drain(t, c, "run_1", 2)); got != "3[] 4[text.finished run.finished]" {
		t.Errorf("got %s", got)
	}
	// The run is a tombstone when everything of it is acknowledged: known, never played again.
	for range 2 {
		if err := c.Ack(t.Context(), "run_1", 4); err != nil {
			t.Fatal(err)
		}
	}
	startTurn(t, c, "run_1", "x")
	if got := show(drain(t, c, "run_1", 4)); got != "" {
		t.Errorf("got %s", got)
	}
	if _, err := Dial(t.Context(), ClientOptions{Socket: w.socket, Secret: "wrong", Binding: testBinding, LeaseGen: 1}); !errors.Is(err, harness.ErrConflict) {
		t.Errorf("wrong secret: %v, want ErrConflict", err)
	}
	if _, err := Dial(t.Context(), ClientOptions{Socket: w.socket + "x", Binding: testBinding, LeaseGen: 1}); !errors.Is(err, harness.ErrUnreachable) {
		t.Errorf("no socket: %v, want ErrUnreachable", err)
	}
	if _, err := Dial(t.Context(), ClientOptions{Socket: "/" + strings.Repeat("x", 200), Binding: testBinding, LeaseGen: 1}); err == nil || !strings.Contains(err.Error(), "107") {
		t.Errorf("long path: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("why")
	cancel(why)
	if err := c.Ack(ctx, "run_1", 4); !errors.Is(err, why) || errors.Is(err, harness.ErrUnreachable) {
		t.Errorf("cancelled by the caller: %v, want its cause", err)
	}
	for range 100 { // it may be cancelled at any moment of the call
		if _, err := c.Events(ctx, "run_1", 4); !errors.Is(err, why) {
			t.Fatalf("cancelled by the caller: %v, want its cause", err)
		}
	}
}

// TestLease: a higher lease is adopted by any call, closes what lower ones read, and from then on lower ones have no

// effect.

// TestReadyClaimsNothing: looking at a worker does not take it over.

// TestShutdownOfADriverThatDoesNothing is bounded, whatever the driver does not do.

func TestUnacknowledgedJournalsAreBounded(t *testing.T) {
	w := newWorker(t, &testDriver{turn: echo})
	c := w.bound(t)
	for i := range MaxUnacknowledged + 3 {
		run := fmt.Sprint("run_", i)
		startTurn(t, c, run, "x")
		<-w.host.runs[run].ended
	}
	if _, err := c.Events(t.Context(), "run_2", 0); !errors.Is(err, harness.ErrGone) {
		t.Fatalf("got %v, want ErrGone", err)
	}
	if got := show(drain(t, c, "run_3", 0)); got != echoShape {
		t.Fatalf("got %s", got)
	}
}

func TestRunsAreBounded(t *testing.T) {
	w := newWorker(t, &testDriver{turn: echo})
	c := w.bound(t)
	w.host.mu.Lock()
	for i := range MaxRuns {
		w.host.runs[fmt.Sprint("old_", i)] = &turn{}
	}
	w.host.mu.Unlock()
	if err := c.StartTurn(t.Context(), harness.Turn{RunID: "run_1"}); !errors.Is(err, harness.ErrGone) {
		t.Fatalf("got %v, want ErrGone", err)
	}
}

func TestStreamsAreBounded(t *testing.T) {
	w := newWorker(t, &testDriver{turn: untilCancelled})
	c := w.bound(t)
	startTurn(t, c, "run_1", "x")
	for range MaxStreams {
		openEvents(t, c, "run_1", 0)
	}
	_, err := c.Events(t.Context(), "run_1", 0)
	if e := new(Error); !errors.As(err, &e) || e.Code != CodeTooMany {
		t.Fatalf("got %v, want too_many", err)
	}
}

func TestListenRefuses(t *testing.T) {
	dir := t.TempDir()
	used := filepath.Join(dir, "s")
	if err := os.WriteFile(used, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := Listen(used); err == nil {
		l.Close()
		t.Fatal("took a path that exists")
	}
	if l, err := Listen(filepath.Join(dir, strings.Repeat("x", 120))); err == nil || !strings.Contains(err.Error(), "107") {
		if l != nil {
			l.Close()
		}
		t.Fatalf("got %v", err)
	}
}

// FuzzBodies: no body makes the worker fail; what it refuses it refuses with a known code.
