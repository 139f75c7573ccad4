package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/harness-engine/harness-engine/bench/swarm"
	"github.com/harness-engine/harness-engine/e2e/enginetest"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/store/sqlite"
)

// replayMessage is the events of one message of the replayed run: its beginning, its deltas and its end.
const replayMessage = 100

// measureReplay reads a long run from its beginning over a WebSocket, beside a reading of the same chunks from the store
// in this process, with the hashes checked and the events decoded, as every reader of the log has to.
func measureReplay(ctx context.Context, r rig) (_ []Result, err error) {
	o := enginetest.Options{Binaries: r.binaries, Data: filepath.Join(r.data, "replay"), Args: r.profile.args()}
	engine, err := startEngine(ctx, o)
	if err != nil {
		return nil, err
	}
	defer engine.close()
	// Each run is replayed once: a second time an engine would find much of it in memory.
	ids, last := make([]string, r.rounds), int64(0)
	for i := range ids {
		if ids[i], last, err = longRun(ctx, engine, fmt.Sprintf("replay-%d", i), r.replay); err != nil {
			return nil, err
		}
	}
	// The store is read from a copy: a data folder is one engine's.
	if err := engine.engine.Stop(); err != nil {
		return nil, err
	}
	path := filepath.Join(r.data, "replay-copy.sqlite")
	if err := copyStore(o.Data, path); err != nil {
		return nil, err
	}
	if err := engine.engine.Restart(ctx); err != nil {
		return nil, err
	}
	engine.client = engine.engine.Client()
	engine.secret = engine.client.Target().Token
	s, err := sqlite.Open(ctx, sqlite.Options{Path: path, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	p := &pairs{name: fmt.Sprintf("replay of %s events", thousands(int(last))), unit: "events/s", goal: atLeast(0.7),
		note: "to one subscriber, from the beginning; beside a reading of the same run from the store alone, in pages of the same size, hashes checked, events decoded"}
	for i, runID := range ids {
		var replayed, read float64
		for step := range 2 { // which comes first changes
			if (step+i)%2 == 0 {
				stop := r.profile.start(p.name, engine)
				replayed, err = replay(ctx, engine, runID, last)
				err = errors.Join(err, stop())
			} else {
				read, err = readStore(ctx, s, runID, last)
			}
			if err != nil {
				return nil, err
			}
		}
		p.add(replayed, read)
	}
	return []Result{p.result()}, nil
}

// longRun makes a run of about n events and returns its last sequence.
func longRun(ctx context.Context, e *engineSubject, conversation string, n int) (runID string, last int64, err error) {
	message := enginetest.Step{"text": strings.Repeat(word, replayMessage-2)}
	run, err := e.client.Start(ctx, enginetest.StartInput{AgentID: e.agent, ConversationID: conversation,
		Message: enginetest.Input{Text: enginetest.Script(enginetest.Step{"repeat": map[string]any{"times": n / replayMessage, "steps": []enginetest.Step{message}}})}})
	if err != nil {
		return "", 0, fmt.Errorf("failed to start a long run: %w", err)
	}
	if run, err = e.client.Settled(ctx, run.ID); err != nil {
		return "", 0, fmt.Errorf("failed to wait for a long run: %w", err)
	}
	if run.Status != "FINISHED" || run.LastSequence < int64(n) {
		return "", 0, fmt.Errorf("the long run is %s at event %d", run.Status, run.LastSequence)
	}
	return run.ID, run.LastSequence, nil
}

// replay reads the run on one subscription and returns the events a second.
func replay(ctx context.Context, e *engineSubject, runID string, last int64) (float64, error) {
	began := time.Now()
	w, err := swarm.Open(ctx, swarm.Options{Addr: e.addr(), Token: e.token(), Query: swarm.Query, Sockets: 1,
		Variables: func(int) []string { return []string{`{"run":"` + runID + `"}`} }})
	if err != nil {
		return 0, err
	}
	defer w.Close()
	if _, err := w.Wait(ctx, func(c swarm.Count) bool { return c.Events >= last }); err != nil {
		return 0, err
	}
	return rate(int(last), time.Since(began)), nil
}

// readStore reads and decodes the run from the log and returns the events a second.
func readStore(ctx context.Context, log event.Log, runID string, last int64) (float64, error) {
	began := time.Now()
	n, after := 0, int64(0)
	for after < last {
		chunks, err := log.Read(ctx, runID, after, event.MaxDelivery)
		if err != nil {
			return 0, err
		}
		for _, c := range chunks {
			if err := c.Verify(); err != nil {
				return 0, err
			}
			events, err := c.Events()
			if err != nil {
				return 0, err
			}
			n, after = n+len(events), c.Last
		}
		if len(chunks) == 0 {
			return 0, fmt.Errorf("the log of %s ends at %d", runID, after)
		}
	}
	return rate(n, time.Since(began)), nil
}

// storeFile is where an engine keeps its log, in its data folder.
const storeFile = "engine.sqlite"

// copyStore copies the database of an engine that has ended.
func copyStore(data, to string) error {
	for _, suffix := range []string{"", "-wal"} {
		if err := copyFile(filepath.Join(data, storeFile)+suffix, to+suffix); err != nil && (suffix == "" || !errors.Is(err, os.ErrNotExist)) {
			return fmt.Errorf("failed to copy the store: %w", err)
		}
	}
	return nil
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}
