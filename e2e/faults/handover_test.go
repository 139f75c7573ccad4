package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
	"github.com/harness-engine/harness-engine/internal/client"
)

// closeRestart is the close code that asks a client to come back (RFC 6455's registry).
const closeRestart = 1012

// TestHandOverUnderLoad sends SIGTERM to an engine with a hundred runs at work and a subscriber on each: every client is asked
// to come back, comes back to the other engine, and sees its run to the end; no run is lost or cancelled.
func TestHandOverUnderLoad(t *testing.T) {
	const runs, words = 100, 40
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute) // it starts a hundred workers
	t.Cleanup(cancel)
	dir := folder(t)
	var engines [2]*enginetest.Engine
	for i := range engines {
		e, err := enginetest.Start(ctx, enginetest.Options{Binaries: programs(t), Data: dir + "/d", Args: []string{"--max-workers", "120"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("engine %d:\n%s", i, e.Log())
			}
			if err := e.Cleanup(); err != nil {
				t.Error(err)
			}
		})
		engines[i] = e
	}
	leaving, agent := newClient(ctx, t, engines[0])
	staying := client.New(client.Options{Target: client.Target{URL: engines[1].URL(), Token: leaving.Target().Token}})
	other := &enginetest.Client{Client: staying}
	t.Cleanup(other.Close)

	type result struct {
		run    string
		seen   []enginetest.Event
		code   int
		failed error
	}
	results := make([]result, runs)
	var started, group sync.WaitGroup
	for i := range results {
		started.Add(1)
		group.Go(func() {
			r := &results[i]
			begun, err := leaving.Start(ctx, enginetest.StartInput{AgentID: agent, Message: enginetest.Input{
				Text: enginetest.Script(enginetest.CountHeld(words, 250*time.Millisecond)),
			}})
			if err != nil {
				started.Done()
				r.failed = err
				return
			}
			r.run = begun.ID
			w, err := leaving.Watch(ctx, begun.ID, 0)
			if err != nil {
				started.Done()
				r.failed = err
				return
			}
			r.seen, _, err = w.Until(ctx, func(seen []enginetest.Event) bool { return len(seen) >= 3 })
			started.Done()
			if err == nil {
				var rest []enginetest.Event
				rest, err = w.Rest(ctx)
				r.seen = append(r.seen, rest...)
			}
			w.Close()
			var closed *websocket.CloseError
			if errors.As(err, &closed) {
				r.code = closed.Code
			}
			rest, err := other.Follow(ctx, begun.ID, enginetest.Last(r.seen).Sequence)
			r.seen, r.failed = append(r.seen, rest...), err
		})
	}
	started.Wait()
	begun := time.Now()
	if err := engines[0].Stop(); err != nil {
		t.Error(err)
	}
	t.Logf("the engine ended %s after SIGTERM", time.Since(begun).Round(time.Millisecond))
	if err := engines[1].Release(ctx, ""); err != nil {
		t.Error(err)
	}
	group.Wait()
	for _, r := range results {
		if r.failed != nil {
			t.Fatalf("run %s: %v", r.run, r.failed)
		}
		if r.code != closeRestart {
			t.Errorf("run %s: its socket was closed with %d, want %d", r.run, r.code, closeRestart)
		}
		wantWhole(ctx, t, other, r.run, r.seen, words)
	}
}
