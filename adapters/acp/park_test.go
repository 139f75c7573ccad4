package acp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/worker"
)

const permissionOptions = `"options":[{"optionId":"y","kind":"allow_once"},{"optionId":"Y","kind":"allow_always"},{"optionId":"n","kind":"reject_once"}]`

const finishedLocal = `run.finished {"outcome":"success","stopReason":"end_turn","thread":{"durability":"LOCAL"}}`

func asking() Profile {
	p := fakeProfile()
	p.Permission = Ask
	p.Forms = true
	return p
}

// start tells of a call that has not run.
func (p *program) call(id string) {
	p.update(`{"sessionUpdate":"tool_call","toolCallId":"` + id + `","name":"sh","title":"t","status":"pending"}`)
}

func (p *program) done(id, status string) {
	p.update(`{"sessionUpdate":"tool_call_update","toolCallId":"` + id + `","status":"` + status + `"}`)
}

// ask asks for permission; the answer is read with answers.
func (p *program) ask(id string) {
	p.send(`{"jsonrpc":"2.0","id":"ask-%s","method":"session/request_permission","params":{"sessionId":%q,"toolCall":{"toolCallId":%q,"rawInput":{"of":%q}},%s}}`, id, fakeSession, id, id, permissionOptions)
}

// answers reads n messages and gives them as short lines.
func (p *program) answers(n int) []string {
	var out []string
	for range n {
		m, ok := p.next()
		switch {
		case !ok:
			return append(out, "end of input")
		case m.Method != "":
			out = append(out, m.Method)
		default:
			out = append(out, string(m.ID)+" "+string(m.Result))
		}
	}
	return out
}

func answered(id, option string) string {
	return fmt.Sprintf(`"ask-%s" {"outcome":{"outcome":"selected","optionId":%q}}`, id, option)
}

func dropped(id string) string {
	return fmt.Sprintf(`"ask-%s" {"outcome":{"outcome":"cancelled"}}`, id)
}

// expect compares inside of a fake process.
func expect(t *testing.T, got []string, want ...string) {
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the agent got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// play runs a turn and gives its recorder.
func play(t *testing.T, d *Driver, r *recorder, turn harness.Turn) *recorder {
	t.Helper()
	if err := d.Turn(t.Context(), turn, r); err != nil {
		t.Fatal(err)
	}
	r.terminal(t)
	return r
}

func asksFor(ids ...string) string {
	var calls []string
	for _, id := range ids {
		calls = append(calls, fmt.Sprintf(`{"toolCallId":%q,"name":"sh","arguments":{"of":%q},"allowed":["approve","reject"]}`, id, id))
	}
	return `{"interruptId":"int_%s","kind":"tool_approval","calls":[` + strings.Join(calls, ",") + `],"revision":1}`
}

func started(id string) string {
	return fmt.Sprintf(`tool.started {"toolCallId":%q,"name":"sh","title":"t"}`, id)
}

func input(id string) string {
	return fmt.Sprintf(`tool.arguments.delta {"toolCallId":%q,"delta":"{\"of\":\"%s\"}"}`, id, id)
}

func interrupted(run string, ids ...string) []string {
	return []string{
		"interrupt.requested " + fmt.Sprintf(asksFor(ids...), run),
		`run.interrupted {"interruptId":"int_` + run + `","reason":"tool_approval","thread":{"durability":"LOCAL"}}`,
	}
}

func TestPermissionsWaitForAPerson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := opened(t, asking(), func(_ int, p *program) {
			p.serve(func(p *program, m message) {
				p.call("a")
				p.ask("a")
				time.Sleep(defaultQuiet / 2) // still the same moment
				p.call("b")
				p.ask("b")
				time.Sleep(defaultQuiet * 2) // the run is over
				p.update(hello)
				p.ask("c") // a call that the agent tells of only now
				expect(t, p.answers(2), answered("a", "y"), answered("b", "n"))
				p.done("a", "completed")
				p.done("b", "failed")
				expect(t, p.answers(1), answered("c", "y"))
				p.done("c", "completed")
				p.result(m.ID, `{"stopReason":"end_turn"}`)
			})
		})
		first := play(t, d, newRecorder(), turnOf("hi"))
		compare(t, first.shapes(), append([]string{started("a"), input("a"), started("b"), input("b")}, interrupted("1", "a", "b")...))
		if !(parker{d}).Parked() {
			t.Error("not parked")
		}
		synctest.Wait()
		second := play(t, d, first.continuing(t), first.resume("run_2", "run_1", decide("a=approve", "b=reject")))
		compare(t, second.shapes(), append([]string{
			`text.started {"messageId":"run_2-m1","role":"assistant"}`,
			`text.delta {"messageId":"run_2-m1","delta":"hello"}`,
			`text.finished {"messageId":"run_2-m1"}`,
			`tool.started {"toolCallId":"c","name":"tool","arguments":{"of":"c"}}`,
			`tool.finished {"toolCallId":"a","result":""}`,
			`tool.error {"toolCallId":"b","code":"rejected","message":"The call was rejected.","retryable":false}`,
		}, strings.Replace(interrupted("2", "c")[0], `"name":"sh"`, `"name":"tool"`, 1), interrupted("2", "c")[1]))
		third := play(t, d, second.continuing(t), second.resume("run_3", "run_2", decide("c=approve")))
		compare(t, third.shapes(), []string{`tool.finished {"toolCallId":"c","result":""}`, finishedLocal})
		if (parker{d}).Parked() {
			t.Error("still parked")
		}
	})
}

func TestMoreThanCanBeAskedAtOnceIsAskedNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = maxAskedCalls + 3
		d, _ := opened(t, asking(), func(_ int, p *program) {
			p.serve(func(p *program, m message) {
				for i := range n {
					p.call(fmt.Sprint(i))
					p.ask(fmt.Sprint(i))
				}
				p.ask("0") // twice for one call
				for i := range n + 1 {
					p.answers(1)
					if i < n {
						p.done(fmt.Sprint(i), "completed")
					}
				}
				p.result(m.ID, `{"stopReason":"end_turn"}`)
			})
		})
		all := func(r *recorder) (d harness.Decision) {
			for _, e := range r.events {
				if asked, ok := e.Data.(event.InterruptRequested); ok {
					for _, c := range asked.Calls {
						d.Calls = append(d.Calls, harness.CallDecision{ToolCallID: c.ToolCallID, Verdict: harness.Approve})
					}
				}
			}
			return d
		}
		first := play(t, d, newRecorder(), turnOf("hi"))
		if got := len(all(first).Calls); got != maxAskedCalls {
			t.Fatalf("%d calls asked", got)
		}
		second := play(t, d, first.continuing(t), first.resume("run_2", "run_1", all(first)))
		if got := len(all(second).Calls); got != n-maxAskedCalls {
			t.Fatalf("%d calls asked then: %v", got, second.shapes())
		}
		third := play(t, d, second.continuing(t), second.resume("run_3", "run_2", all(second)))
		if _, ok := third.terminal(t).(event.RunFinished); !ok {
			t.Errorf("ended as %v", third.shapes())
		}
	})
}

func TestAnAgentThatIsNeverQuietIsInterruptedAnyway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := opened(t, asking(), func(_ int, p *program) {
			p.serve(func(p *program, m message) {
				p.call("a")
				p.ask("a")
				for range 100 {
					time.Sleep(defaultQuiet / 2)
					p.update(hello)
				}
				expect(t, p.answers(1), answered("a", "y"))
				p.done("a", "completed")
				p.result(m.ID, `{"stopReason":"end_turn"}`)
			})
		})
		began := time.Now()
		first := play(t, d, newRecorder(), turnOf("hi"))
		if took := time.Since(began); took != maxQuiet {
			t.Errorf("interrupted after %v", took)
		}
		second := play(t, d, first.continuing(t), first.resume("run_2", "run_1", decide("a=approve")))
		if all := first.text() + second.text(); all != strings.Repeat("hello", 100) {
			t.Errorf("%d bytes of text", len(all))
		}
	})
}

func TestAWithdrawnRequestIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := opened(t, asking(), func(_ int, p *program) {
			p.serve(func(p *program, m message) {
				p.call("a")
				p.ask("a")
				p.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"ask-a"}}`)
				time.Sleep(maxQuiet * 2)
				p.done("a", "failed")
				p.result(m.ID, `{"stopReason":"end_turn"}`)
			})
		})
		r := play(t, d, newRecorder(), turnOf("hi"))
		if _, ok := r.terminal(t).(event.RunFinished); !ok {
			t.Errorf("ended as %v", r.shapes())
		}
	})
}

// TestAskedAndCancelled: a turn that is cancelled in the moment before it would be interrupted answers what waits.
func TestAskedAndCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		d, _ := opened(t, asking(), func(_ int, p *program) {
			p.serve(func(p *program, m message) {
				p.call("a")
				p.ask("a")
				time.Sleep(defaultQuiet / 2)
				cancel(&worker.Cancelled{Reason: event.CancelClientRequest})
				expect(t, p.answers(2), "session/cancel", dropped("a"))
				p.ask("b")
				expect(t, p.answers(1), dropped("b"))
				p.result(m.ID, `{"stopReason":"cancelled"}`)
			})
		})
		r := newRecorder()
		if err := d.Turn(ctx, turnOf("hi"), r); err != nil {
			t.Fatal(err)
		}
		if _, ok := r.terminal(t).(event.RunCancelled); !ok || (parker{d}).Parked() {
			t.Errorf("ended as %v, parked %v", r.shapes(), (parker{d}).Parked())
		}
	})
}

// TestAMessageSupersedesWhatWaits: the agent is told that the turn is cancelled, everything that waits is answered, and
// what it says of it belongs to no run. One that does not follow is killed and started again.
func TestAMessageSupersedesWhatWaits(t *testing.T) {
	for name, obeys := range map[string]bool{"obeyed": true, "not obeyed": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				prompts := 0
				d, env := opened(t, asking(), func(_ int, p *program) {
					p.serve(func(p *program, m message) {
						prompts++
						if prompts == 2 {
							p.update(hello)
							p.result(m.ID, `{"stopReason":"end_turn"}`)
							return
						}
						p.call("a")
						p.ask("a")
						time.Sleep(defaultQuiet * 2)
						p.call("b")
						p.ask("b")
						expect(t, p.answers(3), "session/cancel", dropped("a"), dropped("b"))
						if !obeys {
							<-p.killed
							return
						}
						p.done("a", "failed")
						p.result(m.ID, `{"stopReason":"cancelled"}`)
					})
				})
				play(t, d, newRecorder(), turnOf("hi"))
				time.Sleep(time.Second)
				r := play(t, d, newRecorder(), harness.Turn{RunID: "run_2", Text: "never mind"})
				compare(t, r.shapes(), []string{
					`text.started {"messageId":"run_2-m1","role":"assistant"}`, `text.delta {"messageId":"run_2-m1","delta":"hello"}`,
					`text.finished {"messageId":"run_2-m1"}`, finishedLocal,
				})
				if want := map[bool]int{true: 1, false: 2}[obeys]; env.Tree.(*fakeTree).starts != want {
					t.Errorf("%d processes, want %d", env.Tree.(*fakeTree).starts, want)
				}
			})
		})
	}
}

// TestWhatWaitedIsLost: in each of these cases the resume ends as interrupt_lost, the inherited call is cut off, and the
// next message finds a working agent.
func TestWhatWaitedIsLost(t *testing.T) {
	for name, tc := range map[string]struct {
		lose  func(d *Driver, p *program)
		after string // the run that is gone on after
	}{
		"the process died": {lose: func(d *Driver, _ *program) { d.agent.Load().process.Kill() }},
		"the driver is another": {lose: func(d *Driver, _ *program) {
			if err := d.Close(context.Background()); err != nil {
				panic(err)
			}
		}},
		"too much was said": {lose: func(_ *Driver, p *program) {
			for range 3 {
				p.update(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"` + strings.Repeat("x", 2<<20) + `"}}`)
			}
		}},
		"another run": {after: "run_0"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var first *program
				var once sync.Once
				d, _ := opened(t, asking(), func(_ int, p *program) {
					p.serve(func(p *program, m message) {
						waits := false
						once.Do(func() { waits, first = true, p })
						if !waits {
							p.result(m.ID, `{"stopReason":"end_turn"}`)
							return
						}
						p.call("a")
						p.ask("a")
						if tc.after != "" {
							expect(t, p.answers(2), "session/cancel", dropped("a"))
							p.result(m.ID, `{"stopReason":"cancelled"}`)
							return
						}
						<-p.killed
					})
				})
				r := play(t, d, newRecorder(), turnOf("hi"))
				after := "run_1"
				if tc.after != "" {
					after = tc.after
				}
				if tc.lose != nil {
					tc.lose(d, first)
				}
				synctest.Wait()
				lost := play(t, d, r.continuing(t), r.resume("run_2", after, decide("a=approve")))
				compare(t, lost.shapes(), []string{
					`tool.error {"toolCallId":"a","code":"run_ended","message":"The run ended before the tool answered.","retryable":false}`,
					`run.error {"code":"interrupt_lost","message":"What waited for the decision was lost with its process.",` +
						`"category":"unavailable","retryable":false,"sideEffects":"possible","thread":{"durability":"LOCAL"}}`,
				})
				next := play(t, d, newRecorder(), harness.Turn{RunID: "run_3", Text: "again"})
				compare(t, next.shapes(), []string{finishedLocal})
			})
		})
	}
}

func TestADecisionThatDoesNotAnswerIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := opened(t, asking(), func(_ int, p *program) {
			p.serve(func(p *program, m message) {
				p.call("a")
				p.ask("a")
				expect(t, p.answers(1), answered("a", "y"))
				p.done("a", "completed")
				p.result(m.ID, `{"stopReason":"end_turn"}`)
			})
		})
		r := play(t, d, newRecorder(), turnOf("hi"))
		for _, bad := range []harness.Decision{{}, decide("b=approve"), decide("a=edit"), decide("a=later")} {
			got := play(t, d, r.continuing(t), r.resume("run_2", "run_1", bad))
			if e, ok := got.terminal(t).(event.RunError); !ok || e.Code != "decision_mismatch" {
				t.Errorf("%+v: %v", bad, got.shapes())
			}
		}
		good := play(t, d, r.continuing(t), r.resume("run_3", "run_1", decide("a=approve")))
		compare(t, good.shapes(), []string{`tool.finished {"toolCallId":"a","result":""}`, finishedLocal})
	})
}

func TestWhatIsRefusedNeverFinishes(t *testing.T) {
	for name, status := range map[string]string{"failed": "failed", "completed all the same": "completed", "no end": "", "turn ended": "cancelled"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, _ := opened(t, asking(), func(_ int, p *program) {
					p.serve(func(p *program, m message) {
						p.call("a")
						p.ask("a")
						expect(t, p.answers(1), answered("a", "n"))
						stop := "end_turn"
						switch status {
						case "cancelled": // as some agents do
							stop = status
						case "failed", "completed":
							p.done("a", status)
						}
						p.result(m.ID, `{"stopReason":"`+stop+`"}`)
					})
				})
				r := play(t, d, newRecorder(), turnOf("hi"))
				got := play(t, d, r.continuing(t), r.resume("run_2", "run_1", decide("a=reject"))).shapes()
				if got[0] != `tool.error {"toolCallId":"a","code":"rejected","message":"The call was rejected.","retryable":false}` || len(got) != 2 {
					t.Errorf("events %v", got)
				}
			})
		})
	}
}

func TestCloseWhileParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		d, _ := opened(t, asking(), func(_ int, p *program) {
			defer close(ended)
			p.serve(func(p *program, m message) {
				p.call("a")
				p.ask("a")
				expect(t, p.answers(1), "end of input")
			})
		})
		play(t, d, newRecorder(), turnOf("hi"))
		if err := d.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-ended
		if (parker{d}).Parked() {
			t.Error("parked after the end")
		}
	})
}

func TestPoliciesThatDoNotAsk(t *testing.T) {
	for name, options := range map[string]string{
		"nothing to choose": `"options":[]`, "only for good": `"options":[{"optionId":"Y","kind":"allow_always"}]`,
	} {
		d, _ := opened(t, asking(), func(_ int, p *program) {
			p.serve(func(p *program, m message) {
				p.call("a")
				p.send(`{"jsonrpc":"2.0","id":"ask-a","method":"session/request_permission","params":{"toolCall":{"toolCallId":"a"},%s}}`, options)
				expect(t, p.answers(1), dropped("a"))
				p.result(m.ID, `{"stopReason":"end_turn"}`)
			})
		})
		r := play(t, d, newRecorder(), turnOf("hi"))
		if _, ok := r.terminal(t).(event.RunFinished); !ok {
			t.Errorf("%s: %v", name, r.shapes())
		}
	}
}

// TestWhatADriverIs: the host sees exactly what the profile allows.
func TestWhatADriverIs(t *testing.T) {
	for _, moves := range []bool{true, false} {
		for _, parks := range []bool{true, false} {
			p := fakeProfile()
			p.Interrupts = !parks
			if moves {
				p.StatePaths = []string{"thread"}
			}
			d := New(p)
			s, stateful := d.(worker.Stateful)
			_, parker := d.(worker.Parker)
			if stateful != moves || parker != parks {
				t.Errorf("moves %v, parks %v: stateful %v, parker %v", moves, parks, stateful, parker)
			}
			if moves && !slices.Equal(s.StatePaths(), []string{"thread", sessionFile}) {
				t.Errorf("paths %v", s.StatePaths())
			}
		}
	}
}
