package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/harness-engine/harness-engine/bench/peers/play"
	"github.com/harness-engine/harness-engine/bench/swarm"
	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// manyPerSocket is how many further subscriptions one socket gets.
const manyPerSocket = 90

// measureIdle measures what subscribers cost that nothing happens for, in the engine's process alone: a socket with one
// subscription each, then many subscriptions on a few sockets.
func measureIdle(ctx context.Context, r rig) (_ []Result, err error) {
	engine, err := startEngine(ctx, enginetest.Options{Binaries: r.binaries, Data: filepath.Join(r.data, "idle")})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, engine.close()) }()
	ids, start, err := engine.prepare(ctx, play.Script{Warm: 1, Count: 1, Word: word}, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, start(ctx)) }()
	variables := `{"run":"` + ids[0] + `"}`
	measure := func(sockets, each int) (bytes float64, back float64, err error) {
		all := make([]string, each)
		for i := range all {
			all[i] = variables
		}
		before, err := steady(ctx, engine.pid())
		if err != nil {
			return 0, 0, err
		}
		w, err := swarm.Open(ctx, swarm.Options{Addr: engine.addr(), Token: engine.token(), Query: swarm.Query, Sockets: sockets,
			Variables: func(int) []string { return all }})
		if err != nil {
			return 0, 0, err
		}
		defer w.Close()
		open, err := steady(ctx, engine.pid())
		if err != nil {
			return 0, 0, err
		}
		if c := w.Count(); c.Gone > 0 || c.Completed > 0 {
			return 0, 0, fmt.Errorf("the idle subscribers did not stay: %+v", c)
		}
		w.Close()
		after, err := steady(ctx, engine.pid())
		return float64(open - before), float64(after - before), err
	}
	one := &pairs{name: fmt.Sprintf("idle socket with one subscription, of %s", thousands(r.idle)), unit: "KB", goal: atMost(32),
		note: "what the engine's own memory in RAM grows by (private pages), once it no longer changes; the kernel's socket buffers are not in it"}
	more := &pairs{name: fmt.Sprintf("further idle subscription on an open socket, %d each", manyPerSocket), unit: "KB", goal: atMost(8), note: one.note}
	left := &pairs{name: "left behind by each socket that was cut", unit: "KB",
		note: "of the figure above, what was still there afterwards: the heap keeps room for the next; a second opening needs no more"}
	again := &pairs{name: "the same sockets opened again", unit: "KB", note: "what the engine's memory grows by beyond the first time"}
	sockets := max(r.idle/(manyPerSocket+1), 1)
	// Warm: what a first connection builds is no subscriber's.
	if _, _, err := measure(10, 1); err != nil {
		return nil, err
	}
	many, _, err := measure(sockets, manyPerSocket+1)
	if err != nil {
		return nil, err
	}
	first, kept, err := measure(r.idle, 1)
	if err != nil {
		return nil, err
	}
	second, _, err := measure(r.idle, 1)
	if err != nil {
		return nil, err
	}
	const kb = 1 << 10
	one.alone(first / float64(r.idle) / kb)
	left.alone(kept / float64(r.idle) / kb)
	again.alone((kept + second - first) / float64(r.idle) / kb)
	more.alone(max(0, many-float64(sockets)*first/float64(r.idle)) / float64(sockets*manyPerSocket) / kb)
	return []Result{one.result(), more.result(), left.result(), again.result()}, nil
}

const (
	steadyEvery = time.Second
	steadyFor   = 6                // looks
	steadyMost  = 90 * time.Second // until it is taken as it is
)

// steady is the process's memory once it has not changed by more than a hundredth for some seconds.
func steady(ctx context.Context, pid int) (int64, error) {
	last, same := int64(0), 0
	for end := time.Now().Add(steadyMost); ; {
		now, err := resident(pid)
		if err != nil {
			return 0, err
		}
		if diff := max(now-last, last-now); diff*200 <= last {
			same++
		} else {
			same, last = 0, now
		}
		if same >= steadyFor || time.Now().After(end) {
			return now, nil
		}
		if err := pause(ctx, steadyEvery); err != nil {
			return 0, err
		}
	}
}
