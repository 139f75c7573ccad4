package event_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/event/eventtest"
)

// chunkOf makes a sealed chunk as another engine would have written it.
func chunkOf(t *testing.T, first, gen int64, writer string, events ...event.Event) event.Chunk {
	t.Helper()
	c, err := event.NewChunk(event.ChunkHeader{RunID: "run_1", SessionID: "ses_1", First: first, Gen: gen, Writer: writer}, events)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func write(t *testing.T, log *eventtest.Log, c event.Chunk) {
	t.Helper()
	if err := log.Append(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func TestTakeoverFencesThenFolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := eventtest.NewLog()
		old := open(t, config(log, 1))
		appended(t, old, batch(started, opened))
		tool := event.Event{Data: event.ToolStarted{ToolCallID: "t", Name: "n"}}
		appended(t, old, event.Batch{
			Events:  []event.Event{delta("a"), tool},
			Cursors: map[string]event.Cursor{"worker": {Incarnation: "i", Seq: 9}}, Facts: map[string]string{"k": "v"},
		})
		pub := &published{}
		cfg := config(log, 3)
		cfg.Publish = pub.add
		w := open(t, cfg)
		chunks := log.Chunks("run_1")
		fence := chunks[len(chunks)-1]
		if fence.Gen != 3 || fence.First != 5 || fence.Len() != 1 || fence.Cursors["worker"].Seq != 9 || len(pub.firsts()) != 1 {
			t.Errorf("fence %+v, published %v", fence, pub.firsts())
		}
		if c, ok := w.Cursor("worker"); !ok || c != (event.Cursor{Incarnation: "i", Seq: 9}) || w.Facts()["k"] != "v" {
			t.Errorf("cursor %+v, facts %v", c, w.Facts())
		}
		v := w.Validator()
		if !v.Begun() || v.Generation() != 3 || v.LastText() != "m" || len(v.OpenTools()) != 1 || v.SideEffects() != event.SideEffectsPossible {
			t.Errorf("state %+v", v)
		}
		// The stale writer collides with the fence and stops for good.
		for range 2 {
			if _, err := old.Append(t.Context(), batch(delta("stale"))); !errors.Is(err, event.ErrFenced) {
				t.Errorf("stale append: %v", err)
			}
		}
		appended(t, w, batch(delta("b"), event.Event{Data: event.RunError{Code: "c", Category: event.CategoryUnavailable}}))
		if got := types(history(t, log)); got != "run.started text.started text.delta tool.started run.recovered text.delta text.finished tool.error run.error" {
			t.Errorf("log holds %s", got)
		}
		// An ended log is opened without a fence.
		again := open(t, config(log, 4))
		if !again.Ended() || again.Tail() != 9 || len(log.Chunks("run_1")) != len(chunks)+1 {
			t.Errorf("ended %v, tail %d", again.Ended(), again.Tail())
		}
	})
}

// TestTakeoverOfEmptyLog: the first append is the fence.
func TestTakeoverOfEmptyLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := eventtest.NewLog()
		old, w := open(t, config(log, 1)), open(t, config(log, 2))
		var invalid *event.InvalidError
		if _, err := w.Append(t.Context(), batch(opened)); !errors.As(err, &invalid) || invalid.Rule != 1 {
			t.Errorf("first append without run.started: %v", err)
		}
		appended(t, w, batch(started))
		if _, err := old.Append(t.Context(), batch(started)); !errors.Is(err, event.ErrFenced) {
			t.Errorf("stale start: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		log := eventtest.NewLog()
		old, w := open(t, config(log, 1)), open(t, config(log, 2))
		appended(t, old, batch(started)) // it was on its way when the lease was taken
		for range 2 {
			if _, err := w.Append(t.Context(), batch(started)); !errors.Is(err, event.ErrBegun) {
				t.Errorf("append at a key that an earlier owner took: %v", err)
			}
		}
		w = open(t, config(log, 2))
		appended(t, w, batch(opened))
		if got := types(history(t, log)); got != "run.started run.recovered text.started" {
			t.Errorf("log holds %s", got)
		}
		if _, err := old.Append(t.Context(), batch(opened)); !errors.Is(err, event.ErrFenced) {
			t.Errorf("stale append: %v", err)
		}
	})
}

// TestFenceKeyIsTaken walks rule 3 (4): who wrote the chunk at the fence's key decides.
func TestFenceKeyIsTaken(t *testing.T) {
	for name, tc := range map[string]struct {
		other func(t *testing.T) event.Chunk
		want  error
		log   string
	}{
		"by a lower generation": {
			func(t *testing.T) event.Chunk { return chunkOf(t, 3, 1, "boot1", delta("late")) },
			nil, "run.started text.started text.delta run.recovered",
		},
		"by a lower generation's terminal": {
			func(t *testing.T) event.Chunk {
				return chunkOf(t, 3, 1, "boot1", event.Event{Data: event.TextFinished{MessageID: "m"}}, finished)
			},
			nil, "run.started text.started text.finished run.finished",
		},
		"by a higher generation": {
			func(t *testing.T) event.Chunk {
				return chunkOf(t, 3, 6, "boot6", event.Event{Data: event.RunRecovered{Generation: 6}})
			},
			event.ErrFenced, "",
		},
		"by another writer of this generation": {
			func(t *testing.T) event.Chunk {
				return chunkOf(t, 3, 5, "twin", event.Event{Data: event.RunRecovered{Generation: 5}})
			},
			event.ErrCorrupt, "",
		},
		"by this writer with other content": {
			func(t *testing.T) event.Chunk { return chunkOf(t, 3, 5, "boot5", delta("x")) },
			event.ErrCorrupt, "",
		},
		"by a damaged chunk": {
			func(t *testing.T) event.Chunk {
				c := chunkOf(t, 3, 1, "boot1", delta("late"))
				c.Body[20] ^= 1
				return c
			},
			event.ErrCorrupt, "",
		},
	} {
		for how, hidden := range map[string]int{"": 0, ", not yet visible": 4} {
			t.Run(name+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					log := eventtest.NewLog()
					appended(t, open(t, config(log, 1)), batch(started, opened))
					landed := false
					log.OnAppend(func(c event.Chunk) {
						if !landed && c.First == 3 && c.Gen == 5 {
							landed = true
							log.Inject(eventtest.Fault{Written: true, Hidden: hidden})
							write(t, log, tc.other(t))
						}
					})
					log.Inject(eventtest.Fault{Written: true}) // the fence's own append, which finds its key taken
					w, err := event.OpenWriter(t.Context(), config(log, 5))
					if !errors.Is(err, tc.want) || (tc.want == nil) != (err == nil) {
						t.Fatalf("error %v, want %v", err, tc.want)
					}
					if tc.want != nil {
						return
					}
					if got := types(history(t, log)); got != tc.log {
						t.Errorf("log holds %s", got)
					}
					if int(w.Tail()) != len(history(t, log)) {
						t.Errorf("tail %d", w.Tail())
					}
				})
			})
		}
	}
}

func TestFenceOutcomeUnknown(t *testing.T) {
	for name, f := range map[string]eventtest.Fault{
		"written": eventtest.Unknown(true), "not written": eventtest.Unknown(false), "disk full": eventtest.DiskFull(),
		"failed": eventtest.Failed(errors.New("busy")),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := eventtest.NewLog()
				appended(t, open(t, config(log, 1)), batch(started, opened))
				log.Inject(f)
				log.FailReads(nil, errors.New("read failed"), errors.New("read failed"))
				open(t, config(log, 2))
				if got := types(history(t, log)); got != "run.started text.started run.recovered" {
					t.Errorf("log holds %s", got)
				}
			})
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	base := func(t *testing.T) *eventtest.Log {
		log := eventtest.NewLog()
		appended(t, open(t, config(log, 2)), batch(started, opened))
		write(t, log, chunkOf(t, 3, 2, "boot2", delta("a"), delta("b")))
		return log
	}
	for name, tc := range map[string]struct {
		damage func(t *testing.T, log *eventtest.Log)
		gen    int64
		want   error
	}{
		"a higher generation":       {func(*testing.T, *eventtest.Log) {}, 1, event.ErrFenced},
		"a twin of this generation": {func(t *testing.T, l *eventtest.Log) { write(t, l, chunkOf(t, 5, 3, "twin", delta("c"))) }, 3, event.ErrCorrupt},
		"a damaged tail":            {func(t *testing.T, l *eventtest.Log) { l.Change("run_1", 3, func(c *event.Chunk) { c.Body[30] ^= 1 }) }, 3, event.ErrCorrupt},
		"a damaged chunk":           {func(t *testing.T, l *eventtest.Log) { l.Change("run_1", 1, func(c *event.Chunk) { c.Body[30] ^= 1 }) }, 3, event.ErrCorrupt},
		"changed cursors": {func(t *testing.T, l *eventtest.Log) {
			l.Change("run_1", 1, func(c *event.Chunk) { c.Cursors = map[string]event.Cursor{"a": {}} })
		}, 3, event.ErrCorrupt},
		"a missing head": {func(t *testing.T, l *eventtest.Log) { l.Remove("run_1", 1) }, 3, event.ErrCorrupt},
		"a gap": {func(t *testing.T, l *eventtest.Log) {
			l.Remove("run_1", 3)
			write(t, l, chunkOf(t, 4, 2, "boot2", delta("b")))
		}, 3, event.ErrCorrupt},
		"an overlap":           {func(t *testing.T, l *eventtest.Log) { write(t, l, chunkOf(t, 4, 2, "boot2", delta("b"), delta("c"))) }, 3, event.ErrCorrupt},
		"a broken rule":        {func(t *testing.T, l *eventtest.Log) { write(t, l, chunkOf(t, 5, 2, "boot2", started)) }, 3, event.ErrCorrupt},
		"a falling generation": {func(t *testing.T, l *eventtest.Log) { write(t, l, chunkOf(t, 5, 1, "boot1", delta("c"))) }, 3, event.ErrCorrupt},
		"another session": {func(t *testing.T, l *eventtest.Log) {
			c := chunkOf(t, 5, 2, "boot2", delta("c"))
			c.SessionID = "ses_2"
			c.Seal()
			write(t, l, c)
		}, 3, event.ErrCorrupt},
		"an undecodable event": {func(t *testing.T, l *eventtest.Log) {
			c := chunkOf(t, 5, 2, "boot2", delta("c"))
			c.Body = []byte(`[{"v":9}]`)
			c.Seal()
			write(t, l, c)
		}, 3, event.ErrCorrupt},
		"reads that fail": {func(t *testing.T, l *eventtest.Log) {
			for range 10 {
				l.FailReads(errRead)
			}
		}, 3, errRead},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := base(t)
				tc.damage(t, log)
				if w, err := event.OpenWriter(t.Context(), config(log, tc.gen)); !errors.Is(err, tc.want) {
					t.Errorf("opened %v, error %v", w != nil, err)
				}
			})
		})
	}
	for name, cfg := range map[string]event.WriterConfig{
		"no log": config(nil, 1), "no generation": config(eventtest.NewLog(), 0),
		"no nonce": {Log: eventtest.NewLog(), RunID: "r", SessionID: "s", Gen: 1},
	} {
		if _, err := event.OpenWriter(t.Context(), cfg); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
}

var errRead = errors.New("read failed")

// TestReopenedBySameWriter: a second opening under the same generation finds its own chunk and needs no other fence.
func TestReopenedBySameWriter(t *testing.T) {
	log := eventtest.NewLog()
	appended(t, open(t, config(log, 1)), batch(started, opened))
	w := open(t, config(log, 1))
	appended(t, w, batch(finished))
	if got := types(history(t, log)); got != "run.started text.started text.finished run.finished" {
		t.Errorf("log holds %s", got)
	}
}

// TestContinuedRunInherits: the fold needs what the continued run left open, as the live writer did.
func TestContinuedRunInherits(t *testing.T) {
	log := eventtest.NewLog()
	cfg := config(log, 1)
	cfg.Inherit = event.Inheritance{Tools: []event.OpenTool{{ID: "t"}}}
	w := open(t, cfg)
	var invalid *event.InvalidError
	if _, err := w.Append(t.Context(), batch(started)); !errors.As(err, &invalid) || invalid.Rule != 5 {
		t.Errorf("start that does not say what it continues: %v", err)
	}
	appended(t, w, batch(event.Event{Data: event.RunStarted{Harness: "h", Continues: "run_0"}},
		event.Event{Data: event.ToolFinished{ToolCallID: "t", Result: "r"}}))
	next := config(log, 2)
	if _, err := event.OpenWriter(t.Context(), next); !errors.Is(err, event.ErrCorrupt) {
		t.Errorf("fold without the inheritance: %v", err)
	}
	next = config(log, 3)
	next.Inherit = cfg.Inherit
	if v := open(t, next).Validator(); v.SideEffects() != event.SideEffectsKnown {
		t.Errorf("state %+v", v)
	}
}
