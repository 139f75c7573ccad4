package resolvers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/executor"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/store/sqlite"
)

// longLog is a store with one ended run of n events in chunks of this size.
func longLog(b *testing.B, n, chunk int) (*sqlite.Store, int64) {
	b.Helper()
	s, err := sqlite.Open(b.Context(), sqlite.Options{Path: filepath.Join(b.TempDir(), "log.sqlite"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	next := int64(1)
	put := func(data ...event.Data) {
		events := make([]event.Event, len(data))
		for i, d := range data {
			events[i] = event.Event{Time: time.Now().UTC().Truncate(time.Millisecond), Data: d}
		}
		c, err := event.NewChunk(event.ChunkHeader{RunID: "run_1", SessionID: "ses_1", First: next, Gen: 1, Writer: "w"}, events)
		if err == nil {
			err = s.Append(b.Context(), c)
		}
		if err != nil {
			b.Fatal(err)
		}
		next = c.Last + 1
	}
	put(event.RunStarted{Harness: "scripted", AdapterVersion: "1", AgentVersion: 1}, event.TextStarted{MessageID: "m", Role: "assistant"})
	for next < int64(n) {
		data := make([]event.Data, chunk)
		for i := range data {
			data[i] = event.TextDelta{MessageID: "msg_01m8pypk4j50821ea7rvcdb6jh", Delta: "some tokens "}
		}
		put(data...)
	}
	put(event.TextFinished{MessageID: "m"}, event.RunFinished{Outcome: "success", StopReason: "end_turn", Thread: event.ThreadState{Durability: event.DurabilityLocal}})
	return s, next - 1
}

// cpu is the processor time that the process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkReplay reads a run from its beginning through a feed, beside reading it from the store alone. On a busy machine
// compare the processor's time.
func BenchmarkReplay(b *testing.B) {
	for _, chunk := range []int{1, 16, 256} {
		b.Run(fmt.Sprint("chunk", chunk), func(b *testing.B) {
			s, last := longLog(b, 20_000, chunk)
			b.Run("store", func(b *testing.B) {
				used := cpu()
				for b.Loop() {
					for after := int64(0); after < last; {
						chunks, err := s.Read(b.Context(), "run_1", after, event.MaxDelivery)
						if err != nil {
							b.Fatal(err)
						}
						for _, c := range chunks {
							if err := c.Verify(); err != nil {
								b.Fatal(err)
							}
							if _, err := c.Events(); err != nil {
								b.Fatal(err)
							}
							after = c.Last
						}
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(int64(b.N)*last), "ns/event")
				b.ReportMetric(float64((cpu()-used).Nanoseconds())/float64(int64(b.N)*last), "cpu-ns/event")
			})
			b.Run("feed", func(b *testing.B) {
				used := cpu()
				for b.Loop() {
					hub := event.NewHub(event.HubOptions{Log: s})
					r := &Root{Options: Options{Guard: &switchable{}, Hub: hub, Logger: slog.New(slog.DiscardHandler), Limits: Limits{}.withDefaults()}, frames: newFrames()}
					exec := executor.New(r.Schema())
					ctx := authz.WithCaller(graphql.StartOperationTrace(context.Background()), authz.Caller{Environment: "e", Subject: "s"})
					op, errs := exec.CreateOperationContext(ctx, &graphql.RawParams{
						Query: `subscription { runEvents(runId: "run_1") { through events { sequence type ... on TextDeltaEvent { messageId delta } } } }`})
					if len(errs) > 0 {
						b.Fatal(errs)
					}
					f, ok, err := r.OpenFeed(ctx, op, "")
					if !ok || err != nil {
						b.Fatal(ok, err)
					}
					for {
						_, ok, err := f.Poll(ctx)
						if errors.Is(err, io.EOF) {
							break
						}
						if !ok || err != nil {
							b.Fatal(ok, err)
						}
					}
					f.Close()
					hub.Close()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(int64(b.N)*last), "ns/event")
				b.ReportMetric(float64((cpu()-used).Nanoseconds())/float64(int64(b.N)*last), "cpu-ns/event")
			})
		})
	}
}

// BenchmarkFeedFanOut is what one delivery costs each of a thousand feeds, beside its transport.
func BenchmarkFeedFanOut(b *testing.B) {
	h := newHouse(b, &switchable{})
	defer h.hub.Close()
	feeds := make([]Feed, 1000)
	ctx := context.Background()
	for i := range feeds {
		feeds[i] = h.open(runText, "2")
		if _, ok, err := feeds[i].Poll(ctx); ok || err != nil {
			b.Fatal(ok, err)
		}
		feeds[i].Notify(func() {})
	}
	b.ReportAllocs()
	used := cpu()
	for b.Loop() {
		h.say(event.TextDelta{MessageID: "m", Delta: "some tokens "})
		for _, f := range feeds {
			if item, ok, err := f.Poll(ctx); !ok || err != nil || !item.Waiting {
				b.Fatal(item, ok, err)
			}
		}
	}
	b.ReportMetric(float64((cpu()-used).Nanoseconds())/float64(b.N*len(feeds)), "cpu-ns/delivery")
}
