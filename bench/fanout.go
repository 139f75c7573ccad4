package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/harness-engine/harness-engine/bench/peers/play"
	"github.com/harness-engine/harness-engine/bench/swarm"
	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// shape is one load: so many subscribers, spread evenly over so many runs, of which each says so many words.
type shape struct {
	runs, subscribers int
	words             int
	every             time.Duration // before each word; 0: as fast as the source goes
}

func (s shape) String() string {
	of := "one run"
	if s.runs > 1 {
		of = fmt.Sprintf("%d runs", s.runs)
	}
	if s.every == 0 {
		of += ", unpaced"
	}
	return fmt.Sprintf("fan-out of %s to %s", of, thousands(s.subscribers))
}

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// The loads keep every server below what it can do, at about 10,000 deliveries a second: then each event is a frame of
// its own, and what differs is the work for it. Unpaced, a server may put many events into one frame.
var (
	usualShapes = []shape{
		{1, 1, 300, 10 * time.Millisecond}, {1, 100, 300, 10 * time.Millisecond},
		{1, 1000, 40, 100 * time.Millisecond}, {1, 5000, 10, 500 * time.Millisecond},
		{100, 100, 30, 100 * time.Millisecond}, {100, 1000, 40, 100 * time.Millisecond}, {100, 5000, 10, 500 * time.Millisecond},
		{1, 100, 1500, 0},
	}
	quickShapes = []shape{
		{1, 1, 50, 10 * time.Millisecond}, {1, 100, 100, 10 * time.Millisecond},
		{10, 100, 25, 40 * time.Millisecond}, {1, 100, 500, 0},
	}
)

// word is each delta: about what a model sends at once.
const word = "considering "

// fanPause is before and after what is measured: long enough for the slowest server to have written all before it.
// An engine needs more of it before all of many runs are at work, one after the other.
const (
	fanPause   = 1200 * time.Millisecond
	startPause = 100 * time.Millisecond // for each run of an engine
)

// measureTimeout bounds one measurement of one server.
const measureTimeout = 3 * time.Minute

// delivered is what one measurement of one server found.
type delivered struct {
	perCPU   float64 // events a second of the server's processor time
	perSec   float64 // events a second
	perFrame float64 // events in a frame
	p50, p99 float64 // from the event's time stamp to the subscriber, ms
}

// measureFanOuts measures each shape with the engine and with each peer, one right after the other, in rounds.
func measureFanOuts(ctx context.Context, r rig) (_ []Result, err error) {
	commands, err := peerCommands(ctx, r.root, r.data)
	if err != nil {
		return nil, err
	}
	engine, err := startEngine(ctx, enginetest.Options{Binaries: r.binaries, Data: filepath.Join(r.data, "fan-out"),
		Args: append([]string{"--max-workers", "128", "--max-runs", "512"}, r.profile.args()...)})
	if err != nil {
		return nil, err
	}
	defer engine.close()
	subjects := []subject{engine}
	for _, name := range []string{peerBare, peerGqlgen, peerNode} {
		p, err := startPeer(name, commands[name])
		if err != nil {
			return nil, err
		}
		defer func() { _ = p.close() }()
		subjects = append(subjects, p)
	}
	var results []Result
	for _, s := range r.shapes {
		found := make([][]delivered, len(subjects))
		for range r.fan {
			for i, x := range subjects {
				d, err := measureFanOut(ctx, x, s, r.profile)
				if err != nil {
					return nil, fmt.Errorf("failed to measure %s of %s: %w", s, x.title(), err)
				}
				found[i] = append(found[i], d)
			}
		}
		results = append(results, fanResults(s, found)...)
	}
	return results, nil
}

// fanResults sets the engine (the first) beside the peers: bare, gqlgen and node.
func fanResults(s shape, found [][]delivered) []Result {
	const note = "deliveries a second of the server process's processor time (utime + stime). The engine's part of it holds what the peers do not do: " +
		"workers' journals, validation, the log on the disk, authorization; the peers' events are made in their memory, and never kept"
	beside := func(peer int, name, unit, note string, value func(delivered) float64, g goal) Result {
		p := &pairs{name: name, unit: unit, note: note, goal: g}
		for i := range found[0] {
			p.add(value(found[0][i]), value(found[peer][i]))
		}
		return p.result()
	}
	perCPU := func(d delivered) float64 { return d.perCPU }
	bare, node := goal{}, goal{}
	if s.subscribers >= 100 {
		bare, node = atLeast(0.8), atLeast(3)
	}
	return []Result{
		beside(1, s.String()+", beside bare frames", "events/CPU s", note, perCPU, bare),
		beside(2, s.String()+", beside gqlgen", "events/CPU s", note, perCPU, goal{}),
		beside(3, s.String()+", beside yoga on Node", "events/CPU s", note, perCPU, node),
		beside(1, s.String()+", wall rate beside bare frames", "events/s", "all subscribers together, from the first to the last", func(d delivered) float64 { return d.perSec }, goal{}),
		beside(1, s.String()+", p50 beside bare frames", "ms", latencyNote, func(d delivered) float64 { return d.p50 }, goal{}),
		beside(1, s.String()+", p99 beside bare frames", "ms", latencyNote, func(d delivered) float64 { return d.p99 }, goal{}),
		beside(1, s.String()+", events in a frame", "events", "how many events a frame holds", func(d delivered) float64 { return d.perFrame }, goal{}),
	}
}

const latencyNote = "from an event's time stamp (whole milliseconds; the engine's is set before its append) to the reading of the subscriber's socket, over all subscribers"

// measureFanOut plays the script to the subscribers and looks at the server between the two pauses.
func measureFanOut(ctx context.Context, x subject, s shape, profile *profiler) (d delivered, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, measureTimeout, errors.New("not delivered in time"))
	defer cancel()
	script := play.Script{Warm: 5, Count: s.words, EveryMS: int(s.every.Milliseconds()), PauseMS: int(fanPause.Milliseconds()), Word: word}
	ids, start, err := x.prepare(ctx, script, s.runs)
	if err != nil {
		return d, err
	}
	w, err := swarm.Open(ctx, swarm.Options{
		Addr: x.addr(), Token: x.token(), Query: swarm.Query, Sockets: s.subscribers,
		Variables: func(socket int) []string { return []string{`{"run":"` + ids[socket%len(ids)] + `"}`} },
	})
	if err != nil {
		return d, err
	}
	defer w.Close()
	if err := pause(ctx, settle(s.subscribers)); err != nil {
		return d, err
	}
	if err := start(ctx); err != nil {
		return d, err
	}
	n := int64(s.subscribers)
	before, err := w.Wait(ctx, func(c swarm.Count) bool { return c.Messages >= n })
	if err != nil {
		return d, err
	}
	w.Sample(true)
	stop := profile.start(fmt.Sprintf("%s %s", x.title(), s), x)
	cpu, err := cpuTime(x.pid())
	if err != nil {
		return d, err
	}
	if _, err := w.Wait(ctx, func(c swarm.Count) bool { return c.Events > before.Events }); err != nil {
		return d, err
	}
	began := time.Now()
	after, err := w.Wait(ctx, func(c swarm.Count) bool { return c.Messages >= 2*n })
	if err != nil {
		return d, err
	}
	took := time.Since(began)
	used, err := cpuTime(x.pid())
	if err != nil {
		return d, err
	}
	w.Sample(false)
	if err := stop(); err != nil {
		return d, err
	}
	if _, err := w.Wait(ctx, func(c swarm.Count) bool { return c.Ended >= n }); err != nil {
		return d, err
	}
	events := float64(after.Events - before.Events)
	latencies := w.Latencies()
	return delivered{
		perCPU: events / max(used-cpu, clockTick).Seconds(), perSec: events / took.Seconds(),
		perFrame: events / max(1, float64(after.Frames-before.Frames)),
		p50:      quantile(latencies, 0.5), p99: quantile(latencies, 0.99),
	}, nil
}

// settle is how long a server is left alone with its new subscribers: what opening them cost is no fan-out.
func settle(subscribers int) time.Duration {
	return 300*time.Millisecond + time.Duration(subscribers)*200*time.Microsecond
}

// fileName makes a title one.
func fileName(title string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case ',':
			return -1
		case '/', ' ':
			return '-'
		}
		return r
	}, title)
}
