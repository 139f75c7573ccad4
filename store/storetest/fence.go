package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
)

// appender follows the append rules of the log with raw chunks: one append in flight, at tail + 1.
type appender struct {
	log    event.Log
	run    string
	gen    int64
	writer string
	tail   int64
}

var errFenced = errors.New("fenced")

// append adds n events, or finds out that a higher generation has taken the run over.
func (a *appender) append(ctx context.Context, n int) error {
	c := MakeChunk(a.run, a.tail+1, n, a.gen, a.writer, 0)
	err := a.log.Append(ctx, c)
	if isDuplicate(err) {
		taken, err := a.log.Get(ctx, a.run, c.First)
		switch {
		case err != nil:
			return fmt.Errorf("a duplicate cannot be read: %w", err)
		case taken.Gen > a.gen:
			return errFenced
		}
		return fmt.Errorf("generation %d writes at %d after generation %d took over", taken.Gen, c.First, a.gen)
	}
	if err == nil {
		a.tail = c.Last
	}
	return err
}

// fence takes the run over: read the tail, append at tail + 1, again while an older writer is faster. A tail of a
// higher generation says that another one took over in the meantime: appending after it would be a stale fence.
func (a *appender) fence(ctx context.Context) error {
	for {
		tail, err := a.log.Tail(ctx, a.run)
		if err != nil && !errors.Is(err, event.ErrEmpty) {
			return err
		}
		if tail.Gen > a.gen {
			return errFenced
		}
		c := MakeChunk(a.run, tail.Last+1, 1, a.gen, a.writer, 0)
		err = a.log.Append(ctx, c)
		if !isDuplicate(err) {
			a.tail = c.Last
			return err
		}
		taken, err := a.log.Get(ctx, a.run, c.First)
		if err != nil {
			return err
		}
		if taken.Gen > a.gen {
			return errFenced
		}
	}
}

func fenceStaleWriter(t *testing.T, s Stores) {
	ctx, id := t.Context(), fresh("run")
	old := &appender{log: s.Log, run: id, gen: 1, writer: "eng_old"}
	noError(t, old.fence(ctx)) // an empty log is fenced by its first chunk
	noError(t, old.append(ctx, 4))
	taker := &appender{log: s.Log, run: id, gen: 2, writer: "eng_new"}
	noError(t, taker.fence(ctx))
	wantError(t, old.append(ctx, 5), errFenced)
	noError(t, taker.append(ctx, 3))
	wantError(t, old.append(ctx, 1), errFenced)
	third := &appender{log: s.Log, run: id, gen: 3, writer: "eng_third"}
	noError(t, third.fence(ctx))
	wantError(t, taker.append(ctx, 1), errFenced)
	gens := []int64{}
	for _, c := range readAll(ctx, t, s.Log, id, 100) {
		gens = append(gens, c.Gen)
	}
	if fmt.Sprint(gens) != "[1 1 2 2 3]" {
		t.Errorf("generations in the log are %v", gens)
	}
}

// fenceRace lets a stale writer run at full speed while others take the run over: generations never fall in the log,
// and each writer's acknowledged chunks are there.
func fenceRace(t *testing.T, s Stores) {
	ctx := t.Context()
	for range 15 {
		id := fresh("run")
		const owners = 4
		acked := make([][]int64, owners)
		for i, err := range outcomes(owners, func(i int) error {
			a := &appender{log: s.Log, run: id, gen: int64(i + 1), writer: fmt.Sprintf("eng_%d", i)}
			if err := a.fence(ctx); err != nil {
				return err
			}
			acked[i] = append(acked[i], a.tail)
			for range 12 {
				if err := a.append(ctx, 1); err != nil {
					return err
				}
				acked[i] = append(acked[i], a.tail)
			}
			return nil
		}) {
			if err != nil && !errors.Is(err, errFenced) {
				t.Fatalf("owner %d: %v", i, err)
			}
		}
		byFirst, gen := map[int64]event.Chunk{}, int64(0)
		for _, c := range readAll(ctx, t, s.Log, id, 100) {
			if c.Gen < gen {
				t.Fatalf("generation %d follows generation %d at %d", c.Gen, gen, c.First)
			}
			gen, byFirst[c.First] = c.Gen, c
		}
		if gen != owners {
			t.Fatalf("the last generation in the log is %d", gen)
		}
		for i, seqs := range acked {
			for _, seq := range seqs {
				if byFirst[seq].Gen != int64(i+1) {
					t.Fatalf("chunk %d was acknowledged to generation %d and is of %d", seq, i+1, byFirst[seq].Gen)
				}
			}
		}
	}
}
