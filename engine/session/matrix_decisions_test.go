package session

import (
	"fmt"
	"slices"
	"time"
)

// decisions on interrupts, and what gives them up.
func decisions(b Binding) (out []call) {
	interrupts := map[string]string{"an unknown interrupt": "int-none"}
	revisions := map[string]int64{}
	if p := b.Pending; p != nil {
		interrupts["the pending interrupt"], revisions["the pending interrupt"] = p.Interrupt, p.Revision
	}
	if d := b.Decided; d != nil {
		interrupts["the decided interrupt"], revisions["the decided interrupt"] = d.Interrupt, d.Revision
	}
	for what, interrupt := range interrupts {
		for _, of := range []string{"its revision", "another revision"} {
			revision := revisions[what]
			if of != "its revision" {
				revision++
			}
			out = append(out, resumes(b, what, interrupt, of, revision)...)
			for _, how := range []Settlement{Dismissed, Expired} {
				out = append(out, call{
					kind: "settle", name: fmt.Sprintf("settle %s at %s as %s", what, of, how), once: true,
					do: func(b Binding) (Binding, []Dropped, error) {
						n, err := Settle(b, interrupt, revision, how, "me", matrixOp(b))
						return n, nil, err
					},
					want: func(s state, b Binding) (string, result) {
						switch {
						case what == "the decided interrupt" && s.decided == how:
							return "unchanged", result{}
						case what == "the decided interrupt":
							return "conflict " + string(s.decided), result{}
						case what != "the pending interrupt" || of != "its revision":
							return "conflict", result{}
						}
						b = settledAs(b, how)
						if s.phase == free {
							b = freed(b)
						}
						return "", result{binding: b}
					},
				})
			}
		}
	}
	return out
}

func resumes(b Binding, what, interrupt, of string, revision int64) (out []call) {
	run, digest := fmt.Sprintf("run-%d", b.Rev), "digest"
	if d := b.Decided; what == "the decided interrupt" && d.How == Resumed {
		run, digest = d.Run, d.Digest
	}
	on := func(b Binding, late bool) Op {
		op := matrixOp(b)
		if late && b.Pending != nil && b.Pending.Deadline != nil {
			op.Now = *b.Pending.Deadline // at the deadline is too late
		}
		return op
	}
	for _, late := range []bool{false, true} {
		for _, by := range []string{"the same decision", "another decision", "the same decision for another run"} {
			digest, run := digest, run
			switch by {
			case "another decision":
				digest += "!"
			case "the same decision for another run":
				run += "!"
			}
			out = append(out, call{
				kind: "resume", name: fmt.Sprintf("resume %s at %s by %s, late=%v", what, of, by, late), once: true,
				at: func(b Binding) time.Time { return on(b, late).Now },
				do: func(b Binding) (Binding, []Dropped, error) {
					n, err := Resume(b, interrupt, revision, run, digest, "me", on(b, late))
					return n, nil, err
				},
				want: func(s state, b Binding) (string, result) {
					switch {
					case what == "the decided interrupt" && s.decided == Resumed && of == "its revision" && by == "the same decision":
						return "unchanged", result{}
					case what == "the decided interrupt":
						return "conflict " + string(s.decided), result{}
					case what != "the pending interrupt" || of != "its revision":
						return "conflict", result{}
					case s.limited && late:
						return "conflict EXPIRED", result{}
					case s.phase != free: // the interrupted run's terminal is not logged yet
						return "busy with " + b.Active.Run, result{}
					}
					b = settledAs(b, Resumed) // ahead of everyone who waits
					b.Decided.Digest, b.Decided.Run = digest, run
					return "", result{binding: activated(b, Queued{Run: run})}
				},
			})
		}
	}
	return out
}

// removals take runs off the queue, the worker off the conversation, and the past off everything.
func removals(b Binding) (out []call) {
	for what, gen := range map[string]int64{"the worker": b.SandboxGen, "another worker": b.SandboxGen + 1} {
		out = append(out, call{
			kind: "retire", name: "retire " + what, once: true,
			do: func(b Binding) (Binding, []Dropped, error) {
				n, err := Retire(b, gen, matrixOp(b))
				return n, nil, err
			},
			want: func(s state, b Binding) (string, result) {
				if s.phase != free || !s.sandbox || what != "the worker" {
					return "unchanged", result{}
				}
				b.Sandbox = nil
				return "", result{binding: b}
			},
		})
	}
	runs := map[string]string{"a run that is not queued": "run-none"}
	if b.Active != nil {
		runs["the active run"] = b.Active.Run
	}
	if n := len(b.Queue); n > 0 {
		runs["the first"], runs["the middle one"], runs["the last"] = b.Queue[0].Run, b.Queue[n/2].Run, b.Queue[n-1].Run
	}
	for what, run := range runs {
		out = append(out, call{
			kind: "cancel queued", name: "cancel " + what + " of the queue", once: true,
			do: func(b Binding) (Binding, []Dropped, error) {
				n, d, err := CancelQueued(b, run, matrixOp(b))
				if err != nil {
					return n, nil, err
				}
				return n, []Dropped{d}, nil
			},
			want: func(_ state, b Binding) (string, result) {
				i := slices.IndexFunc(b.Queue, func(q Queued) bool { return q.Run == run })
				if i < 0 {
					return "unchanged", result{}
				}
				q := b.Queue[i]
				if b.Queue = slices.Concat(b.Queue[:i], b.Queue[i+1:]); len(b.Queue) == 0 {
					b.Queue = nil
				}
				b, d := droppedAs(b, q)
				return "", result{binding: b, dropped: []Dropped{d}}
			},
		})
	}
	lost := Queued{Run: "run-lost", Pin: matrixPin}
	return append(out, call{
		kind: "drop", name: "drop",
		do: func(b Binding) (Binding, []Dropped, error) {
			n, d := Drop(b, lost, matrixOp(b))
			return n, []Dropped{d}, nil
		},
		want: func(_ state, b Binding) (string, result) {
			b, d := droppedAs(b, lost)
			return "", result{binding: b, dropped: []Dropped{d}}
		},
	}, call{
		kind: "clear", name: "clear",
		do: func(b Binding) (Binding, []Dropped, error) {
			n, dropped := Clear(b, matrixOp(b))
			return n, dropped, nil
		},
		want: func(s state, b Binding) (string, result) {
			var r result
			for _, q := range b.Queue {
				var d Dropped
				b, d = droppedAs(b, q)
				r.dropped = append(r.dropped, d)
			}
			if s.pending != "" {
				b = settledAs(b, Cleared)
			}
			b.Epoch++
			b.AgentVersion, b.Harness, b.Queue, b.Head = 0, "", nil, Head{}
			if s.phase == free {
				b.Sandbox = nil
			} else {
				b.Draining = b.Active.Run
			}
			r.binding = b
			return "", r
		},
	})
}
