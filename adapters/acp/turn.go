package acp

import (
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/worker"
)

// turn is one running prompt. While it is the agent's turn, its fields are guarded by the agent's turnMu; err may be
// read without it once failed is closed.
type turn struct {
	translator *translator
	sink       worker.Sink
	ending     atomic.Bool   // a cancel was sent
	err        error         // why the turn cannot go on: of the sink, or errTooMuch
	failed     chan struct{} // closed when err is set
	over       bool          // the sink takes nothing any more
	asks       []*ask        // what waits for a person
	stir       chan struct{} // holds a token when something came while asks are waiting
}

func newTurn(p Profile, runID string, sink worker.Sink) *turn {
	return &turn{translator: newTranslator(p, runID), sink: sink, failed: make(chan struct{}), stir: make(chan struct{}, 1)}
}

func (t *turn) fail(err error) {
	if t.err == nil && err != nil {
		t.err = err
		close(t.failed)
	}
}

func (t *turn) malformed() { t.fail(t.translator.badForm()) }

func (t *turn) update(raw json.RawMessage) {
	if t.err != nil {
		return
	}
	steps, err := t.translator.update(raw)
	t.yield(steps)
	t.fail(err)
	t.stirred()
}

// yield hands steps to the sink. It blocks while the journal is full, and with it the agent.
func (t *turn) yield(steps []worker.Step) {
	for _, s := range steps {
		if t.over {
			return
		}
		if err := t.sink.Yield(s); err != nil {
			t.over = true
			t.fail(&sinkError{err})
		}
	}
}

// sinkError is an error of the sink: the host ended the turn, and no terminal can be yielded any more.
type sinkError struct{ err error }

func (e *sinkError) Error() string { return "failed to yield: " + e.err.Error() }
func (e *sinkError) Unwrap() error { return e.err }

const stopCancelled = "cancelled"

// stopReasons are those that end a run as finished.
var stopReasons = map[string]bool{"end_turn": true, "max_tokens": true, "max_turn_requests": true, "refusal": true}

// readResult decodes a prompt's answer.
func readResult(raw json.RawMessage) (promptResult, error) {
	var r promptResult
	if json.Unmarshal(raw, &r) != nil || (!stopReasons[r.StopReason] && r.StopReason != stopCancelled) {
		return promptResult{}, fmt.Errorf("bad answer to a prompt: %w", errViolation)
	}
	return r, nil
}

// terminalStep carries the terminal with the facts of the turn. A terminal that is an error or a cancel closes what is
// open by itself: that is the validator's part.
func (t *turn) terminalStep(d event.Data) worker.Step {
	return worker.Step{Events: []event.Event{{Data: d}}, Facts: t.translator.facts.take()}
}
