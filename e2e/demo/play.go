package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// How the disturbed subscriber is treated.
const (
	cutsPerRun    = 3
	eventsBetween = 8 // events that it gets on each connection before the next cut
	missedPerCut  = 5 // events that happen while it is away
)

// play is one run of the demonstration.
type play struct {
	harness string
	text    string
}

// plays are the runs: the harness that needs no model, and the default one. Without a provider key the engine's own
// fake model answers, and the markers in the text say what.
func plays() []play {
	text := `[[think]] [[tool write_file {"file_path":"/notes.md","content":"written by the demo"}]] [[then]] [[slow 60 30]]`
	if os.Getenv("ANTHROPIC_API_KEY") != "" || os.Getenv("OPENAI_API_KEY") != "" {
		text = "Write a haiku about rivers into the file /haiku.md, read it back, and then tell me in about 200 words how you wrote it."
	}
	return []play{
		{harness: "scripted", text: enginetest.Script(
			enginetest.Reason("Somebody wants to see a stream."),
			enginetest.Call("look", `{"at":"the river"}`, "it flows"),
			enginetest.Count(60, 30*time.Millisecond),
		)},
		{harness: "deepagents", text: text},
	}
}

// tally counts the events of the log and what the disturbed subscriber lost or got twice.
type tally struct{ events, lost, doubled int }

func (t *tally) add(o tally) { t.events += o.events; t.lost += o.lost; t.doubled += o.doubled }

// perform saves an agent, starts a run, watches it twice, cuts one of the two off, and compares.
func (p play) perform(ctx context.Context, c *enginetest.Client) (tally, error) {
	agent, err := c.NewAgent(ctx, "demo-"+p.harness+"-"+strconv.FormatInt(time.Now().UnixMilli(), 36), p.harness)
	if err != nil {
		return tally{}, fmt.Errorf("failed to save the agent: %w", err)
	}
	run, err := c.Start(ctx, enginetest.StartInput{AgentID: agent.ID, Message: enginetest.Input{Text: p.text}})
	if err != nil {
		return tally{}, fmt.Errorf("failed to start the run: %w", err)
	}
	say("%s: agent %s saved, run %s started", p.harness, agent.ID, run.ID)

	witness, err := c.NewWitness(ctx, run.ID)
	if err != nil {
		return tally{}, fmt.Errorf("failed to subscribe: %w", err)
	}
	got, cuts, err := c.FollowCut(ctx, run.ID, enginetest.Cutting{
		Times: cutsPerRun, After: eventsBetween,
		Away: func(ctx context.Context, through int64) error { return witness.Past(ctx, through, missedPerCut) },
	})
	if err != nil {
		return tally{}, fmt.Errorf("failed to follow the run: %w", err)
	}
	seen, err := witness.All(ctx)
	if err != nil {
		return tally{}, fmt.Errorf("failed to follow the run without a cut: %w", err)
	}
	log, err := c.Log(ctx, run.ID, 0)
	if err != nil {
		return tally{}, fmt.Errorf("failed to read the log: %w", err)
	}
	return p.judge(got, seen, log, cuts)
}

// judge compares the three readings.
func (p play) judge(got, seen, log []enginetest.Event, cuts []int64) (tally, error) {
	if err := enginetest.CheckLog(log); err != nil {
		return tally{}, fmt.Errorf("the log is not whole: %w", err)
	}
	end := enginetest.Last(log)
	if end.Type != enginetest.RunFinished {
		return tally{}, fmt.Errorf("the run did not finish: %s", end)
	}
	if len(cuts) == 0 {
		return tally{}, fmt.Errorf("the run was over before the connection could be cut (%d events)", len(log))
	}
	if d := enginetest.Compare(seen, log); !d.None() {
		return tally{}, fmt.Errorf("the undisturbed subscriber saw something else than the log: %s", d)
	}
	d := enginetest.Compare(got, log)
	if d.Foreign+d.Changed+d.Disordered > 0 {
		return tally{}, fmt.Errorf("the disturbed subscriber saw something else than the log: %s", d)
	}
	if !d.None() {
		say("%s: %s", p.harness, d)
	}
	say("%s: connection cut after events %v, resumed each time; %d events, the same for the cut subscriber, the uncut one and the log",
		p.harness, cuts, len(log))
	return tally{events: len(log), lost: d.Lost, doubled: d.Doubled}, nil
}
