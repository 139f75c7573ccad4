package resolvers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/executor"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"pgregory.net/rapid"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/event/eventtest"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

// house is an API over a log in memory, with one session of one run.
type house struct {
	t      testing.TB
	root   *Root
	exec   *executor.Executor
	log    *eventtest.Log
	hub    *event.Hub
	writer *event.Writer
}

// shelf has the documents of the house's session and run.
type shelf struct{}

func (shelf) SessionsOf(context.Context, string, string, string, string, int) ([]session.Binding, error) {
	return nil, nil
}

func (shelf) Runs(context.Context, run.Filter, run.Position, int) ([]run.Run, error) { return nil, nil }

func (shelf) Session(_ context.Context, id string) (session.Binding, error) {
	if id != "ses_1" {
		return session.Binding{}, session.ErrNotFound
	}
	return session.Binding{ID: "ses_1", NextOrd: 2, Active: &session.Active{Run: "run_1", Ord: 1}}, nil
}

func (shelf) SessionRuns(_ context.Context, id string, _, afterOrd int64, _ int) ([]run.Run, error) {
	if id != "ses_1" || afterOrd >= 1 {
		return nil, nil
	}
	return []run.Run{{ID: "run_1", Ord: 1, Epoch: 1, SessionID: "ses_1"}}, nil
}

func (shelf) SessionRunsBefore(context.Context, string, int64, int64, int) ([]run.Run, error) {
	return nil, nil
}

func (shelf) Run(_ context.Context, id string) (run.Run, error) {
	return run.Run{ID: id, Status: run.StatusRunning, LastSequence: 7}, nil
}

func (shelf) Watch(string, func()) (release func()) { return func() {} }

type agentsPort = Agents // under another name than its method

func newHouse(t testing.TB, guard Guard) *house {
	t.Helper()
	h := &house{t: t, log: eventtest.NewLog()}
	h.hub = event.NewHub(event.HubOptions{Log: h.log})
	var err error
	if h.root, err = New(Options{
		Guard: guard, Hub: h.hub, Sessions: shelf{}, Runs: shelf{}, Events: h.log, Logger: slog.New(slog.DiscardHandler),
		Feed: run.NewSessionFeed(run.SessionFeedOptions{Runs: shelf{}, Sessions: shelf{}, Hub: h.hub, Changes: shelf{}}),
		// Not used by streams.
		Agents: struct{ agentsPort }{}, Catalog: struct{ Catalog }{}, Control: struct{ Control }{}, Changes: struct{ Changes }{},
		LogEpoch: "here",
	}); err != nil {
		t.Fatal(err)
	}
	h.exec = executor.New(h.root.Schema())
	h.exec.SetErrorPresenter(h.root.Present)
	h.exec.SetRecoverFunc(h.root.Recover)
	h.exec.Use(Streams{})
	h.writer, err = event.OpenWriter(context.Background(), event.WriterConfig{Log: h.log, Publish: h.hub.Publish, RunID: "run_1", SessionID: "ses_1",
		Gen: 1, Nonce: "n", Bounds: event.DefaultBounds()})
	if err != nil {
		t.Fatal(err)
	}
	h.say(event.RunStarted{Harness: "scripted", AdapterVersion: "1", AgentVersion: 1}, event.TextStarted{MessageID: "m", Role: "assistant"})
	return h
}

func (h *house) say(data ...event.Data) {
	h.t.Helper()
	events := make([]event.Event, len(data))
	for i, d := range data {
		events[i].Data = d
	}
	if _, err := h.writer.Append(context.Background(), event.Batch{Events: events}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) end() {
	h.say(event.TextFinished{MessageID: "m"}, event.RunFinished{Outcome: "success", StopReason: "end_turn", Thread: event.ThreadState{Durability: event.DurabilityLocal}})
}

func known() context.Context {
	return authz.WithCaller(context.Background(), authz.Caller{Environment: "test", Subject: "rita"})
}

func (h *house) operation(ctx context.Context, text string, vars map[string]any) (context.Context, *graphql.OperationContext) {
	h.t.Helper()
	ctx = graphql.StartOperationTrace(ctx)
	op, errs := h.exec.CreateOperationContext(ctx, &graphql.RawParams{Query: text, Variables: vars})
	if len(errs) > 0 {
		h.t.Fatalf("%s: %v", text, errs)
	}
	return ctx, op
}

func (h *house) open(text, after string) Feed {
	h.t.Helper()
	ctx, op := h.operation(known(), text, nil)
	f, ok, err := h.root.OpenFeed(ctx, op, after)
	if !ok || err != nil {
		h.t.Fatalf("%s: %v, %v", text, ok, err)
	}
	return f
}

// items polls until nothing is there; ended says that the feed is complete.
func (h *house) items(f Feed) (got []Item, ended bool) {
	h.t.Helper()
	for {
		item, ok, err := f.Poll(context.Background())
		switch {
		case errors.Is(err, io.EOF):
			return got, true
		case err != nil:
			h.t.Fatal(err)
		case !ok:
			return got, false
		}
		got = append(got, item)
	}
}

const runText = `subscription { runEvents(runId: "run_1") { through caughtUp events { sequence type ... on TextDeltaEvent { delta } } } }`

// Whoever selects the same gets the same bytes, however it was written; whoever selects something else does not.
func TestFeedsShareDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a frame is kept for a time
		h := newHouse(t, &switchable{})
		defer h.hub.Close()
		same := []Feed{
			h.open(runText, ""),
			h.open(runText, "0"),
			h.open(`subscription Named { runEvents(after: 0, runId: "run_1") { ...B } }
			fragment B on RunEventBatch { through caughtUp events { ... on RunEvent { sequence } type ... on TextDeltaEvent { delta } sequence runId @include(if: false) } }`, ""),
		}
		other := []Feed{
			h.open(`subscription { runEvents(runId: "run_1") { caughtUp through events { sequence type ... on TextDeltaEvent { delta } } } }`, ""),
			h.open(`subscription { r: runEvents(runId: "run_1") { through caughtUp events { sequence type ... on TextDeltaEvent { delta } } } }`, ""),
			h.open(`subscription { sessionEvents(sessionId: "ses_1") { through caughtUp events { sequence type ... on TextDeltaEvent { delta } } } }`, ""),
		}
		for round := range 3 {
			var first []Item
			for i, f := range append(same, other...) {
				got, ended := h.items(f)
				if len(got) != 1 || ended {
					t.Fatalf("round %d, feed %d: %d items, ended %v", round, i, len(got), ended)
				}
				if i == 0 {
					first = got
				}
				if shared := &got[0].Payload[0] == &first[0].Payload[0]; shared != (i < len(same)) {
					t.Errorf("round %d, feed %d: shared %v", round, i, shared)
				}
			}
			h.say(event.TextDelta{MessageID: "m", Delta: "x"}, event.TextDelta{MessageID: "m", Delta: "y"})
		}
		for _, f := range append(same, other...) {
			f.Close()
			f.Close()
		}
	})
}

// caughtUp is told as it is for each reader, and where it is not selected it splits nothing.
func TestCaughtUpDoesNotBreakSharing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a frame is kept for a time
		h := newHouse(t, &switchable{})
		defer h.hub.Close()
		plain := `subscription { runEvents(runId: "run_1") { through events { sequence } } }`
		f, p := h.open(runText, ""), h.open(plain, "")
		live, livePlain := first(h.items(f)), first(h.items(p))
		h.say(event.TextDelta{MessageID: "m", Delta: "x"})
		late, _ := h.items(h.open(runText, ""))
		latePlain, _ := h.items(h.open(plain, ""))
		if !strings.Contains(string(live.Payload), `"caughtUp":true`) || !strings.Contains(string(late[0].Payload), `"caughtUp":false`) {
			t.Errorf("live %s, late %s", live.Payload, late[0].Payload)
		}
		if &livePlain.Payload[0] != &latePlain[0].Payload[0] {
			t.Error("without caughtUp the same delivery was encoded twice")
		}
	})
}

func first(items []Item, _ bool) Item { return items[0] }

// A feed of any selection, cut off and opened again with its cursors, gives what the ordinary way gives.
func TestFeedsGiveWhatTheOrdinaryWayGives(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := newHouse(t, &switchable{answer: answer{ok: true}})
		defer h.hub.Close()
		for range rapid.IntRange(0, 30).Draw(rt, "chunks") {
			data := make([]event.Data, rapid.IntRange(1, 9).Draw(rt, "n"))
			for i := range data {
				data[i] = event.TextDelta{MessageID: "m", Delta: awkward[1+i%4]}
			}
			h.say(data...)
		}
		h.end()
		text := rapid.SampledFrom([]string{
			runText,
			`subscription { sessionEvents(sessionId: "ses_1") { runId ord epoch through caughtUp events { __typename sequence time namespace } } }`,
		}).Draw(rt, "text")
		ordinary := strings.Contains(text, "sessionEvents")
		cursor, seen := "", []string{}
		for done := false; !done; {
			f := h.open(text, cursor)
			for range rapid.IntRange(1, 4).Draw(rt, "polls") {
				item, ok, err := f.Poll(context.Background())
				if done = !ok; done {
					if err != nil && !errors.Is(err, io.EOF) || (err == nil) != ordinary {
						rt.Fatal(err)
					}
					break
				}
				cursor, seen = item.Cursor, append(seen, sequences(rt, item.Payload)...)
			}
			f.Close()
		}
		ctx, op := h.operation(WithStream(known(), StreamMessages), text, nil)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		responses, ctx := h.exec.DispatchOperation(ctx, op)
		var want []string
		for int64(len(want)) < h.writer.Tail() {
			want = append(want, sequences(rt, []byte(`{"data":`+string(responses(ctx).Data)+`}`))...)
		}
		if fmt.Sprint(seen) != fmt.Sprint(want) {
			rt.Fatalf("got %v, want %v", seen, want)
		}
	})
}

// sequences are the events of a payload, as text.
func sequences(t *rapid.T, payload []byte) (out []string) {
	var got struct {
		Data map[string]struct{ Events []map[string]any }
	}
	if err := json.Unmarshal(payload, &got); err != nil {
		t.Fatalf("%v in %s", err, payload)
	}
	for _, batch := range got.Data {
		for _, e := range batch.Events {
			out = append(out, fmt.Sprint(e))
		}
	}
	return out
}

// Whatever is wrong with an operation, opening its feed answers what executing it answers.
func TestOpeningAnswersWhatTheOrdinaryWayAnswers(t *testing.T) {
	yes, no := answer{ok: true}, answer{}
	unavailable := answer{err: problem.New(problem.AuthorizationUnavailable, "try again").With("retryable", true)}
	elsewhere := encodeSessionCursor("ses_2", run.SessionCursor{Ord: 1}, "here")
	beyond := encodeSessionCursor("ses_1", run.SessionCursor{Ord: 9}, "here")
	past := encodeSessionCursor("ses_1", run.SessionCursor{Ord: 1}, "there")
	for name, c := range map[string]struct {
		guard Guard
		ctx   context.Context
		text  string
		vars  map[string]any
	}{
		"nobody":             {yes, context.Background(), runText, nil},
		"denied":             {no, known(), runText, nil},
		"no answer":          {unavailable, known(), runText, nil},
		"alias":              {no, known(), "subscription {\n  mine: runEvents(runId: \"run_1\") { through } }", nil},
		"negative":           {yes, known(), `subscription { runEvents(runId: "run_1", after: -1) { through } }`, nil},
		"denied, negative":   {no, known(), `subscription { runEvents(runId: "run_1", after: -1) { through } }`, nil},
		"long id":            {yes, known(), `subscription($r: ID!) { runEvents(runId: $r) { through } }`, map[string]any{"r": strings.Repeat("x", 1000)}},
		"no id":              {yes, known(), `subscription { runEvents(runId: "") { through } }`, nil},
		"number":             {yes, known(), `subscription($a: Int!) { runEvents(runId: "run_1", after: $a) { through } }`, map[string]any{"a": 1.5}},
		"another history":    {yes, known(), `subscription { runEvents(runId: "run_1", logEpoch: "there") { through } }`, nil},
		"no cursor":          {yes, known(), `subscription { sessionEvents(sessionId: "ses_1", after: "?") { through } }`, nil},
		"another session's":  {yes, known(), `subscription { sessionEvents(sessionId: "ses_1", after: "` + elsewhere + `") { through } }`, nil},
		"a later run":        {yes, known(), `subscription { sessionEvents(sessionId: "ses_1", after: "` + beyond + `") { through } }`, nil},
		"session's history":  {yes, known(), `subscription { sessionEvents(sessionId: "ses_1", after: "` + past + `") { through } }`, nil},
		"session, not there": {yes, known(), `subscription { sessionEvents(sessionId: "ses_9", after: "` + encodeSessionCursor("ses_9", run.SessionCursor{Ord: 1}, "here") + `") { through } }`, nil},
	} {
		h := newHouse(t, c.guard)
		ctx := graphql.StartOperationTrace(WithStream(c.ctx, StreamMessages))
		params := &graphql.RawParams{Query: c.text, Variables: c.vars}
		op, errs := h.exec.CreateOperationContext(ctx, params)
		if len(errs) > 0 { // it never gets to a feed
			if name != "number" {
				t.Errorf("%s: %v", name, errs)
			}
			h.hub.Close()
			continue
		}
		f, ok, err := h.root.OpenFeed(ctx, op, "")
		responses, ctx := h.exec.DispatchOperation(ctx, op)
		want := responses(ctx)
		var got gqlerror.List
		switch {
		case !ok: // the ordinary way is taken
		case !errors.As(err, &got):
			t.Errorf("%s: %v, %v; want %v", name, f, err, want.Errors)
		case text(got) != text(want.Errors):
			t.Errorf("%s: %s, want %s", name, text(got), text(want.Errors))
		}
		h.hub.Close()
	}
}

func text(errs gqlerror.List) string {
	raw, _ := json.Marshal(errs)
	return string(raw)
}

// Who has followed so far needs one Poll for each delivery: it tells when there is more, to those who share it as well.
func TestAFeedWaitsBehindADelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, &switchable{})
		defer h.hub.Close()
		session := strings.ReplaceAll(runText, `runEvents(runId: "run_1")`, `sessionEvents(sessionId: "ses_1")`)
		feeds := []Feed{h.open(runText, ""), h.open(runText, ""), h.open(session, ""), h.open(session, "")}
		calls := make([]int, len(feeds))
		for i, f := range feeds {
			f.Notify(func() { calls[i]++ })
		}
		for round := range 4 {
			for i, f := range feeds {
				if item, ok, err := f.Poll(context.Background()); !ok || err != nil || !item.Waiting || calls[i] != round {
					t.Errorf("round %d, feed %d, called %d times: %+v, %v, %v", round, i, calls[i], item, ok, err)
				}
			}
			h.say(event.TextDelta{MessageID: "m", Delta: "x"})
			synctest.Wait()
		}
		h.end()
		for i, f := range feeds {
			item, ok, err := f.Poll(context.Background())
			if !ok || err != nil || item.Waiting {
				t.Errorf("feed %d at its end: %+v, %v, %v", i, item, ok, err)
			}
			f.Close()
		}
	})
}

// What is no feed is left to the executor, and nobody is asked for it.
func TestOtherOperationsAreLeftAlone(t *testing.T) {
	h := newHouse(t, answer{err: errors.New("asked")})
	defer h.hub.Close()
	for _, text := range []string{`{ viewer { subject } }`, `subscription { sessionChanged @skip(if: true) { id } }`} {
		ctx, op := h.operation(known(), text, nil)
		if f, ok, err := h.root.OpenFeed(ctx, op, ""); f != nil || ok || err != nil {
			t.Errorf("%s: %v, %v, %v", text, f, ok, err)
		}
	}
}

// A bad id of a last event is refused, a good one goes on behind it.
func TestFeedsBeginBehindALastEvent(t *testing.T) {
	h := newHouse(t, &switchable{})
	defer h.hub.Close()
	for _, bad := range []string{"x", "-1", "1 ", "99999999999"} {
		ctx, op := h.operation(known(), runText, nil)
		var errs gqlerror.List
		if _, ok, err := h.root.OpenFeed(ctx, op, bad); !ok || !errors.As(err, &errs) || errs[0].Extensions["code"] != "BAD_USER_INPUT" {
			t.Errorf("%q: %v, %v", bad, ok, err)
		}
	}
	got, _ := h.items(h.open(runText, "1"))
	if len(got) != 1 || got[0].Cursor != "2" || !strings.Contains(string(got[0].Payload), `"events":[{"sequence":2,`) {
		t.Errorf("%+v", got)
	}
}

// Deliveries are permitted until the moment that the check gave; a renewal moves it, waits while there is no answer, and
// ends the feed where the permission has ended.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &switchable{}
		h := newHouse(t, g)
		defer h.hub.Close()
		f := h.open(runText, "")
		begun := time.Now()
		if !f.Until().Equal(begun.Add(authz.MaxAge)) {
			t.Errorf("until %v", f.Until())
		}
		time.Sleep(3 * time.Second)
		if err := f.Renew(context.Background()); err != nil || !f.Until().Equal(time.Now().Add(authz.MaxAge)) {
			t.Errorf("%v, until %v", err, f.Until())
		}
		g.set(unanswered)
		time.AfterFunc(2*time.Second, func() { g.set(nil) })
		if err := f.Renew(context.Background()); err != nil || f.Until().Before(time.Now()) {
			t.Errorf("%v, until %v", err, f.Until())
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		g.set(unanswered)
		if err := f.Renew(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		var shown *gqlerror.Error
		if err := f.Renew(context.Background()); !errors.As(err, &shown) || shown.Extensions["code"] != "AUTHORIZATION_UNAVAILABLE" {
			t.Errorf("%v", err)
		}
		g.set(problem.NotFoundf("run"))
		if err := f.Renew(context.Background()); !errors.As(err, &shown) || shown.Extensions["code"] != "FORBIDDEN" || shown.Path.String() != "runEvents" {
			t.Errorf("%v", err)
		}
		f.Close()
	})
}

// The canonical form is one server-sent message for each event.
func TestCanonicalFeed(t *testing.T) {
	h := newHouse(t, &switchable{})
	defer h.hub.Close()
	h.end()
	f, err := h.root.OpenRun(known(), "run_1", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, ended := h.items(f)
	var all strings.Builder
	for _, item := range got {
		all.Write(item.Payload)
	}
	messages := strings.Split(strings.TrimSuffix(all.String(), "\n\n"), "\n\n")
	if len(messages) != 3 || !ended {
		t.Fatalf("%q, ended %v", messages, ended)
	}
	for i, m := range messages {
		lines := strings.Split(m, "\n")
		var wire struct {
			Sequence int64
			Type     string
		}
		if len(lines) != 3 || json.Unmarshal([]byte(strings.TrimPrefix(lines[2], "data: ")), &wire) != nil ||
			wire.Sequence != int64(i)+2 || lines[0] != fmt.Sprintf("id: %d%s", wire.Sequence, h.root.HistoryMark()) || lines[1] != "event: "+wire.Type {
			t.Errorf("message %q", m)
		}
	}
	for name, c := range map[string]struct {
		guard Guard
		ctx   context.Context
		run   string
		after int64
		code  problem.Code
	}{
		"nobody":   {answer{ok: true}, context.Background(), "run_1", 0, problem.Unauthenticated},
		"denied":   {answer{}, known(), "run_1", 0, problem.NotFound},
		"negative": {answer{ok: true}, known(), "run_1", -1, problem.BadUserInput},
		"internal": {answer{err: errors.New("dial tcp 10.0.0.7: secret")}, known(), "run_1", 0, problem.Internal},
	} {
		h.root.Guard = c.guard
		_, err := h.root.OpenRun(c.ctx, c.run, c.after)
		var p *problem.Error
		if !errors.As(err, &p) || p.Code != c.code || strings.Contains(p.Message, "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An error of the log is the end of the operation, and tells nothing of itself.
func TestAFeedEndsWithWhatAClientMaySee(t *testing.T) {
	h := newHouse(t, &switchable{})
	defer h.hub.Close()
	h.log.FailReads(errors.New("disk /var/lib/x"))
	f := h.open(runText, "")
	_, ok, err := f.Poll(context.Background())
	var shown *gqlerror.Error
	if ok || !errors.As(err, &shown) || shown.Extensions["code"] != "INTERNAL" || strings.Contains(shown.Error(), "disk") || shown.Path.String() != "runEvents" {
		t.Errorf("%v, %v", ok, err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := f.Poll(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if got, _ := h.items(f); len(got) != 1 { // it may be polled again
		t.Errorf("%d items", len(got))
	}
	f.Close()
}

// What cannot be encoded ends the feed: polling on does not step over it.
func TestAFeedDoesNotStepOverWhatItCannotEncode(t *testing.T) {
	for _, text := range []string{runText, `subscription { sessionEvents(sessionId: "ses_1") { through events { sequence type } } }`} {
		h := newHouse(t, &switchable{})
		h.log.Change("run_1", 1, func(c *event.Chunk) {
			c.Body = []byte(strings.Replace(string(c.Body), "run.started", "run.stranger", 1))
			c.Seal()
		})
		h.hub.Close() // the ring has it as it was
		h.hub = event.NewHub(event.HubOptions{Log: h.log})
		h.root.Hub = h.hub
		h.root.Feed = run.NewSessionFeed(run.SessionFeedOptions{Runs: shelf{}, Sessions: shelf{}, Hub: h.hub, Changes: shelf{}})
		f := h.open(text, "")
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		for i, ctx := range []context.Context{context.Background(), ended, context.Background()} {
			if item, ok, err := f.Poll(ctx); ok || err == nil || errors.Is(err, io.EOF) {
				t.Errorf("%s, poll %d: %+v, %v, %v", text, i, item, ok, err)
			}
		}
		f.Close()
		h.hub.Close()
	}
}

// counted is a checker that takes a moment, and says yes.
type counted struct{ checks atomic.Int64 }

func (c *counted) Check(context.Context, authz.Check) (bool, error) {
	c.checks.Add(1)
	time.Sleep(time.Millisecond) // the bubble's clock
	return true, nil
}

func (c *counted) CheckAll(context.Context, []authz.Check) ([]bool, error) {
	return nil, authz.ErrUnavailable
}

func (*counted) Ownership(context.Context, authz.Object) (authz.Ownership, bool, error) {
	return authz.Ownership{Environment: "test", Owner: "rita", AgentID: "agt_1", SessionID: "ses_1"}, true, nil
}

// A thousand equal opens are one check, and so are their renewals.
func TestABurstOfFeedsIsOneCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counted{}
		g, err := authz.NewGuard(authz.GuardOptions{Checker: c, Facts: c, Environment: "test"})
		if err != nil {
			t.Fatal(err)
		}
		h := newHouse(t, g)
		defer h.hub.Close()
		feeds := make([]Feed, 1000)
		var wg sync.WaitGroup
		for i := range feeds {
			wg.Go(func() { feeds[i] = h.open(runText, "") })
		}
		wg.Wait()
		if n := c.checks.Load(); n != 1 {
			t.Errorf("%d checks to open", n)
		}
		time.Sleep(authz.MaxAge)
		for _, f := range feeds {
			wg.Go(func() {
				if err := f.Renew(context.Background()); err != nil || time.Until(f.Until()) < authz.MaxAge-time.Second {
					t.Errorf("%v, until %v", err, f.Until())
				}
			})
		}
		wg.Wait()
		if n := c.checks.Load(); n != 2 {
			t.Errorf("%d checks with the renewals", n)
		}
		for _, f := range feeds {
			f.Close()
		}
	})
}

// A thousand feeds that are idle have no goroutine, and about a kilobyte each.
func TestIdleFeedsAreSmall(t *testing.T) {
	h := newHouse(t, &switchable{})
	defer h.hub.Close()
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for name, text := range map[string]string{"run": runText, "session": strings.ReplaceAll(runText, `runEvents(runId: "run_1")`, `sessionEvents(sessionId: "ses_1")`)} {
		const idle = 1000
		feeds := make([]Feed, idle)
		h.items(h.open(text, ""))
		before, goroutines := heap(), runtime.NumGoroutine()
		for i := range feeds {
			feeds[i] = h.open(text, "")
			if got, _ := h.items(feeds[i]); len(got) != 1 {
				t.Fatalf("%d items", len(got))
			}
			feeds[i].Notify(func() { _ = i })
		}
		each := (heap() - before) / idle
		t.Logf("%s: %d bytes for each idle feed", name, each)
		if each > 1200 {
			t.Errorf("%s: %d bytes for each idle feed", name, each)
		}
		if n := runtime.NumGoroutine() - goroutines; n > 1 {
			t.Errorf("%s: %d goroutines more", name, n)
		}
		for _, f := range feeds {
			f.Close()
		}
	}
}

// Frames are made once, are bounded in bytes and age, and a failure is not kept.
func TestFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := newFrames()
		key := func(n int64) frameKey { return frameKey{runID: "run_1", first: n, through: n} }
		var mu sync.Mutex
		made := 0
		write := func(size int) func() (Item, error) {
			return func() (Item, error) {
				mu.Lock()
				made++
				mu.Unlock()
				runtime.Gosched()
				return Item{Payload: make([]byte, size)}, nil
			}
		}
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if f, err := fs.get(key(0), write(10)); err != nil || len(f.item.Payload) != 10 {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if made != 1 {
			t.Errorf("made %d times", made)
		}
		for n := range int64(100) {
			if _, err := fs.get(key(n), write(1<<20)); err != nil {
				t.Fatal(err)
			}
			fs.mu.Lock()
			if fs.bytes > frameBytes || len(fs.order) > 33 || len(fs.known) > 33 {
				t.Errorf("%d bytes in %d frames", fs.bytes, len(fs.order))
			}
			fs.mu.Unlock()
		}
		if _, err := fs.get(key(1000), func() (Item, error) { return Item{}, errUnwritten }); err == nil {
			t.Error("no error")
		}
		if _, err := fs.get(key(1000), write(1)); err != nil {
			t.Errorf("the failure was kept: %v", err)
		}
		time.Sleep(2 * frameAge)
		fs.mu.Lock()
		defer fs.mu.Unlock()
		if fs.bytes != 0 || len(fs.order) != 0 || len(fs.known) != 0 || fs.sweep != nil {
			t.Errorf("%d bytes in %d frames", fs.bytes, len(fs.order))
		}
	})
}
