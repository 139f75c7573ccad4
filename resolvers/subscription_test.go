package resolvers

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/event/eventtest"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/graph/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// switchable is a Guard whose answer to rechecks can be changed.
type switchable struct {
	answer
	mu    sync.Mutex
	err   error
	asked int
}

func (g *switchable) set(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
}

func (g *switchable) Recheck(context.Context, string, authz.Object) (time.Time, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked++
	return time.Now().Add(authz.MaxAge), g.err
}

// watched is a subscription in a bubble of its own clock.
type watched struct {
	t      *testing.T
	guard  *switchable
	writer *event.Writer
	end    *streamEnd
	out    <-chan *model.RunEventBatch
	cancel context.CancelFunc
	hub    *event.Hub
}

func watch(t *testing.T) *watched {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	log := eventtest.NewLog()
	w := &watched{t: t, guard: &switchable{}, end: &streamEnd{}, cancel: cancel, hub: event.NewHub(event.HubOptions{Log: log})}
	var err error
	if w.writer, err = event.OpenWriter(ctx, event.WriterConfig{Log: log, Publish: w.hub.Publish, RunID: "run_1", SessionID: "ses_1", Gen: 1, Nonce: "n", Bounds: event.DefaultBounds()}); err != nil {
		t.Fatal(err)
	}
	w.append(event.RunStarted{Harness: "scripted", AdapterVersion: "1", AgentVersion: 1}, event.TextStarted{MessageID: "m", Role: "assistant"})
	r := &Root{Options: Options{Guard: w.guard, Hub: w.hub, Logger: slog.New(slog.DiscardHandler), Limits: Limits{}.withDefaults()}}
	if w.out, err = (subscriptions{r}).RunEvents(context.WithValue(ctx, streamEndKey{}, w.end), "run_1", 0, nil); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *watched) append(data ...event.Data) {
	w.t.Helper()
	events := make([]event.Event, len(data))
	for i, d := range data {
		events[i].Data = d
	}
	if _, err := w.writer.Append(context.Background(), event.Batch{Events: events}); err != nil {
		w.t.Fatal(err)
	}
}

// through is the cursor of the next batch; it is an error when none is on its way.
func (w *watched) through() int64 {
	w.t.Helper()
	synctest.Wait()
	select {
	case b, ok := <-w.out:
		if ok {
			return b.Through
		}
		w.t.Fatalf("the stream has ended: %v", w.end.err)
	default:
		w.t.Fatal("nothing is delivered")
	}
	return 0
}

// quiet reports that nothing is on its way, and the stream has not ended.
func (w *watched) quiet() bool {
	synctest.Wait()
	select {
	case <-w.out:
		return false
	default:
		return true
	}
}

// ended reads the code that the stream ended with.
func (w *watched) ended() problem.Code {
	w.t.Helper()
	if b, ok := <-w.out; ok {
		w.t.Fatalf("delivered %+v", b)
	}
	if w.end.err == nil {
		return ""
	}
	code, _ := w.end.err.Extensions["code"].(string)
	return problem.Code(code)
}

func (w *watched) close() {
	w.cancel()
	w.hub.Close()
	for range w.out { //nolint:revive // the channel closes behind the context
	}
}

var unanswered = problem.New(problem.AuthorizationUnavailable, "try again")

// While nobody can say whether the subscriber may, nothing is delivered; what came meanwhile follows when the answer
// is yes again.
func TestAStreamIsHeldWhileThereIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t)
		defer w.close()
		if got := w.through(); got != 2 {
			t.Errorf("through %d", got)
		}
		w.guard.set(unanswered)
		time.Sleep(authz.MaxAge + time.Second) // the bubble's clock
		w.append(event.TextDelta{MessageID: "m", Delta: "a"})
		if !w.quiet() {
			t.Error("delivered without a permission")
		}
		w.guard.set(nil)
		time.Sleep(recheckPause)
		if got := w.through(); got != 3 {
			t.Errorf("through %d", got)
		}
		w.guard.set(unanswered)
		time.Sleep(authz.MaxAge + w.limits() + 2*recheckPause)
		if code := w.ended(); code != problem.AuthorizationUnavailable {
			t.Errorf("ended with %q", code)
		}
	})
}

func (w *watched) limits() time.Duration { return Limits{}.withDefaults().HoldFor }

// An idle stream asks again by itself, and a revocation ends it within the bound.
func TestARevocationEndsAnIdleStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t)
		defer w.close()
		w.through()
		time.Sleep(time.Minute)
		synctest.Wait()
		if w.guard.asked < 12 || w.guard.asked > 14 {
			t.Errorf("asked %d times in a minute", w.guard.asked)
		}
		w.guard.set(problem.NotFoundf("run"))
		begun := time.Now()
		if code := w.ended(); code != problem.Forbidden {
			t.Errorf("ended with %q", code)
		}
		if late := time.Since(begun); late > authz.MaxAge {
			t.Errorf("after %s", late)
		}
	})
}

// What a slow subscriber has not taken by then is not delivered any more.
func TestASlowSubscriberGetsNothingAfterARevocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t)
		defer w.close()
		synctest.Wait() // a batch is on its way; nobody takes it
		w.guard.set(problem.NotFoundf("run"))
		time.Sleep(authz.MaxAge + time.Second)
		if code := w.ended(); code != problem.Forbidden {
			t.Errorf("ended with %q", code)
		}
	})
}

func TestAStreamEndsBehindTheTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t)
		defer w.close()
		w.through()
		w.append(event.TextFinished{MessageID: "m"}, event.RunFinished{Outcome: "success", StopReason: "end_turn", Thread: event.ThreadState{Durability: event.DurabilityLocal}})
		if got := w.through(); got != 4 {
			t.Errorf("through %d", got)
		}
		if code := w.ended(); code != "" {
			t.Errorf("ended with %q", code)
		}
	})
}
