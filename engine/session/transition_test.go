package session

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func op(n int) Op {
	return Op{ID: fmt.Sprintf("op%d", n), Now: time.Unix(int64(n), 0).UTC()}
}

// TestTransitions walks random sequences of every transition and checks, after each, the invariants of the document
// and what must never go backwards.
func TestTransitions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := New("ses_x", Key{Subject: "alice", AgentID: "agt_x"}, op(0))
		runs, n := 0, 0
		ords := map[int64]string{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			n++
			before := b
			lease, busy := b.Lease()
			if rapid.IntRange(0, 9).Draw(t, "stale") == 0 {
				lease.Gen--
			}
			var after Binding
			var err error
			kind := rapid.SampledFrom([]string{"admit", "claim", "reclaim", "replace", "discard", "retire", "finish", "give up", "commit", "interrupt", "resume", "dismiss", "drop", "clear"}).Draw(t, "kind")
			switch kind {
			case "admit":
				runs++
				policy := rapid.SampledFrom([]Policy{Reject, Enqueue, Interrupt}).Draw(t, "policy")
				after, err = Admit(b, fmt.Sprintf("run%d", runs), "me", Pin{AgentVersion: int64(n), Harness: "scripted"}, policy, op(n))
				var other *BusyError
				refused := errors.As(err, &other)
				if full := len(before.Queue) == MaxQueue; refused && policy != Reject && !full || !refused && policy == Reject && (busy || len(before.Queue) > 0) {
					t.Fatalf("admit by %s while busy=%v with %d queued gave %v", policy, busy, len(before.Queue), err)
				}
				if err == nil && after.Active != nil && before.Active == nil {
					if before.AgentVersion != 0 && after.AgentVersion != before.AgentVersion {
						t.Fatalf("admission moved the pin from %d to %d", before.AgentVersion, after.AgentVersion)
					}
					if run, taken := ords[after.Active.Ord]; taken {
						t.Fatalf("order %d given to %s and %s", after.Active.Ord, run, after.Active.Run)
					}
					ords[after.Active.Ord] = after.Active.Run
				}
			case "claim":
				after, err = Claim(b, lease.Run, "other", op(n))
			case "reclaim":
				after, err = Reclaim(b, lease, op(n))
			case "replace":
				after, err = Replace(b, lease, func(g int64) string { return fmt.Sprint(g) }, op(n))
			case "discard":
				after, err = Discard(b, lease, op(n))
			case "retire":
				after, err = Retire(b, b.SandboxGen, op(n))
				if busy && !errors.Is(err, ErrUnchanged) {
					t.Fatalf("retired the worker of a busy binding: %v", err)
				}
			case "finish", "give up":
				if after, err = Finish(b, lease, "me", op(n)); kind == "give up" {
					after, err = GiveUp(b, lease.Run, "me", op(n))
				}
				if err == nil && before.Draining != "" && after.Sandbox != nil {
					t.Fatal("a drained epoch left its worker to the next one")
				}
				if err == nil && after.Active != nil {
					if run, taken := ords[after.Active.Ord]; taken {
						t.Fatalf("order %d given to %s and %s", after.Active.Ord, run, after.Active.Run)
					}
					ords[after.Active.Ord] = after.Active.Run
					if before.Queue[0].Run != after.Active.Run {
						t.Fatalf("activated %s out of turn", after.Active.Run)
					}
				}
			case "commit":
				after, err = Commit(b, lease, b.SandboxGen, &Head{Rev: b.Head.Rev + 1, Hash: op(n).ID, ByRun: lease.Run}, nil, op(n))
			case "interrupt":
				after, err = Commit(b, lease, b.SandboxGen, nil, &Pending{Interrupt: "int-" + lease.Run, Run: lease.Run, Revision: 1}, op(n))
			case "resume", "dismiss":
				interrupt := "int-none"
				if b.Pending != nil {
					interrupt = b.Pending.Interrupt
				}
				if kind == "dismiss" {
					after, err = Settle(b, interrupt, 1, Dismissed, "me", op(n))
				} else {
					runs++
					after, err = Resume(b, interrupt, 1, fmt.Sprintf("run%d", runs), "digest", "me", op(n))
				}
				if err == nil && (after.Pending != nil || after.Decided.Interrupt != interrupt) {
					t.Fatal("a decided interrupt still waits")
				}
				if err == nil && after.Active != nil && before.Active == nil {
					ords[after.Active.Ord] = after.Active.Run
				}
			case "drop":
				if len(b.Queue) == 0 {
					continue
				}
				var d Dropped
				after, d, err = CancelQueued(b, b.Queue[len(b.Queue)/2].Run, op(n))
				if err == nil {
					if run, taken := ords[d.Ord]; taken {
						t.Fatalf("order %d given to %s and %s", d.Ord, run, d.Run)
					}
					ords[d.Ord] = d.Run
				}
			case "clear":
				var dropped []Dropped
				after, dropped = Clear(b, op(n))
				if len(dropped) != len(before.Queue) || len(after.Queue) != 0 {
					t.Fatalf("cleared %d queued runs, dropped %d", len(before.Queue), len(dropped))
				}
				for _, d := range dropped {
					ords[d.Ord] = d.Run
				}
				if after.Active != nil && after.Draining != after.Active.Run {
					t.Fatal("cleared under an active run without draining it")
				}
			}
			if err != nil {
				if !reflect.DeepEqual(after, before) {
					t.Fatalf("%s failed with %v and changed the binding", kind, err)
				}
				continue
			}
			if lease.Gen != 0 && before.Active != nil && lease.Gen != before.Active.Gen && (kind == "reclaim" || kind == "commit" || kind == "interrupt" || kind == "replace" || kind == "discard" || kind == "finish") {
				t.Fatalf("%s accepted stale lease generation %d of %d", kind, lease.Gen, before.Active.Gen)
			}
			if after.Rev != before.Rev+1 || after.LastOp != op(n).ID {
				t.Fatalf("%s made revision %d by %s from %d", kind, after.Rev, after.LastOp, before.Rev)
			}
			if after.LeaseGen < before.LeaseGen || after.SandboxGen < before.SandboxGen || after.Epoch < before.Epoch || after.NextOrd < before.NextOrd {
				t.Fatalf("%s moved a generation backwards: %+v to %+v", kind, before, after)
			}
			if err := after.Check(); err != nil {
				t.Fatalf("after %s: %v", kind, err)
			}
			b = after
		}
	})
}

func TestClearUnpins(t *testing.T) {
	b := New("ses_x", Key{}, op(0))
	b, err := Admit(b, "run1", "me", Pin{AgentVersion: 3, Harness: "scripted"}, Reject, op(1))
	if err != nil {
		t.Fatal(err)
	}
	l, _ := b.Lease()
	if b, err = Finish(b, l, "me", op(2)); err != nil {
		t.Fatal(err)
	}
	if b, err = Admit(b, "run2", "me", Pin{AgentVersion: 9, Harness: "other"}, Reject, op(3)); err != nil {
		t.Fatal(err)
	}
	if b.AgentVersion != 3 || b.Harness != "scripted" {
		t.Fatalf("second run moved the pin to %d, %s", b.AgentVersion, b.Harness)
	}
	l, _ = b.Lease()
	b, _ = Clear(b, op(4))
	if _, err = Admit(b, "run3", "me", Pin{AgentVersion: 9, Harness: "other"}, Reject, op(5)); err == nil {
		t.Fatal("admitted while the old epoch drains")
	}
	if b, err = Finish(b, l, "me", op(6)); err != nil {
		t.Fatal(err)
	}
	if b, err = Admit(b, "run3", "me", Pin{AgentVersion: 9, Harness: "other"}, Reject, op(7)); err != nil {
		t.Fatal(err)
	}
	if b.AgentVersion != 9 || b.Harness != "other" || b.Epoch != 2 {
		t.Fatalf("after clear: version %d, harness %s, epoch %d", b.AgentVersion, b.Harness, b.Epoch)
	}
}
