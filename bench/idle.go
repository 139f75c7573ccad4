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

// warmSockets are opened and closed before anything is measured.
const warmSockets = 10

// idleFor is how long the processor time of idle subscribers is measured: rechecks come every few seconds.
const idleFor = 10 * time.Second

// manyPerSocket is how many further subscriptions one socket gets.
const manyPerSocket = 90

// measureIdle measures what subscribers cost that nothing happens for, in the engine's process alone: a socket with one
// subscription each, then many subscriptions on a few sockets.
func measureIdle(ctx context.Context, r rig) (_ []Result, err error) {
	look, err := newProfiler(r.data)
	if err != nil {
		return nil, err
	}
	engine, err := startEngine(ctx, enginetest.Options{Binaries: r.binaries, Data: filepath.Join(r.data, "idle"), Args: look.args()})
	if err != nil {
		return nil, err
	}
	defer engine.close()
	ids, start, err := engine.prepare(ctx, play.Script{Warm: 1, Count: 1, Word: word}, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, start(ctx)) }()
	b := &idleBench{engine: engine, look: look, variables: `{"run":"` + ids[0] + `"}`}

	// What the first connections build is no subscriber's.
	if _, err := b.measure(ctx, warmSockets, 1); err != nil {
		return nil, err
	}
	sockets := max(r.idle/(manyPerSocket+1), 1)
	many, err := b.measure(ctx, sockets, manyPerSocket+1)
	if err != nil {
		return nil, err
	}
	one, err := b.measure(ctx, r.idle, 1)
	if err != nil {
		return nil, err
	}
	again, err := b.measure(ctx, r.idle, 1)
	if err != nil {
		return nil, err
	}
	const pages = "what the engine's own memory in RAM grows by (private pages), once it no longer changes; the kernel's socket buffers are not in it"
	const reach = "objects that can be reached, and stacks, after a collection of garbage"
	n, further := float64(r.idle), float64(sockets*manyPerSocket)
	perSocket := float64(one.resident) / n
	figure := func(name, unit, note string, value float64, g goal) Result {
		p := &pairs{name: name, unit: unit, note: note, goal: g}
		p.alone(value)
		return p.result()
	}
	const kb = 1 << 10
	of := fmt.Sprintf(", of %s", thousands(r.idle))
	return []Result{
		figure("idle socket with one subscription"+of, "KB", pages, perSocket/kb, atMost(32)),
		figure("idle socket with one subscription"+of+", live", "KB", reach, float64(one.live.bytes)/n/kb, goal{}),
		figure("further idle subscription on an open socket", "KB", pages, max(0, float64(many.resident)-float64(sockets)*perSocket)/further/kb, atMost(8)),
		figure("further idle subscription on an open socket, live", "KB", reach,
			max(0, float64(many.live.bytes)-float64(sockets)*float64(one.live.bytes)/n)/further/kb, goal{}),
		figure("goroutines of an idle socket", "goroutines", "with its one subscription", float64(one.live.goroutines)/n, goal{}),
		figure("left by each socket that was cut, live", "KB", reach, float64(one.left.bytes)/n/kb, goal{}),
		figure("left by all sockets that were cut", "goroutines", "beyond those that there were before", float64(one.left.goroutines), goal{}),
		figure("the same sockets opened again", "KB", "what the memory in RAM was higher at than the first time, a socket", float64(again.at-one.at)/n/kb, goal{}),
		figure("processor time of idle subscribers, a socket each", "ms/s for 1,000", "permissions that are asked again, pings, polls of the log; the idle engine's own included",
			float64(one.cpu.Microseconds())/1000/idleFor.Seconds()/n*1000, goal{}),
	}, nil
}

type idleBench struct {
	engine    *engineSubject
	look      *profiler
	variables string // of every subscription
}

// idled is what one opening of sockets cost.
type idled struct {
	resident int64 // growth in bytes
	at       int64 // bytes with all sockets open
	live     live  // growth
	left     live  // what was still there when all sockets had been cut
	cpu      time.Duration
}

func (b *idleBench) measure(ctx context.Context, sockets, each int) (d idled, err error) {
	all := make([]string, each)
	for i := range all {
		all[i] = b.variables
	}
	liveBefore, err := b.look.live(ctx)
	if err != nil {
		return d, err
	}
	before, err := steady(ctx, b.engine.pid())
	if err != nil {
		return d, err
	}
	w, err := swarm.Open(ctx, swarm.Options{Addr: b.engine.addr(), Token: b.engine.token(), Query: swarm.Query, Sockets: sockets,
		Variables: func(int) []string { return all }})
	if err != nil {
		return d, err
	}
	defer w.Close()
	if d.at, err = steady(ctx, b.engine.pid()); err != nil {
		return d, err
	}
	d.resident = d.at - before
	cpu, err := cpuTime(b.engine.pid())
	if err != nil {
		return d, err
	}
	if err := pause(ctx, idleFor); err != nil {
		return d, err
	}
	used, err := cpuTime(b.engine.pid())
	if err != nil {
		return d, err
	}
	d.cpu = used - cpu
	liveOpen, err := b.look.live(ctx)
	if err != nil {
		return d, err
	}
	if c := w.Count(); c.Gone > 0 || c.Completed > 0 {
		return d, fmt.Errorf("the idle subscribers did not stay: %+v", c)
	}
	w.Close()
	if _, err := steady(ctx, b.engine.pid()); err != nil {
		return d, err
	}
	liveAfter, err := b.look.live(ctx)
	if err != nil {
		return d, err
	}
	d.live = live{liveOpen.bytes - liveBefore.bytes, liveOpen.goroutines - liveBefore.goroutines}
	d.left = live{liveAfter.bytes - liveBefore.bytes, liveAfter.goroutines - liveBefore.goroutines}
	return d, nil
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
