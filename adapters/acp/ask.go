package acp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
)

// ask is one request of the agent that waits for a person: for a permission, or with a form.
type ask struct {
	id json.RawMessage

	call            *call  // that waits for permission
	approve, reject string // ids of the options; empty where the agent does not offer it

	form *form
}

// cancelled is the answer to a request whose turn is over.
func (q *ask) cancelled() *answer {
	if q.form != nil {
		return &answer{result: elicitationAnswer{Action: "cancel"}}
	}
	return &answer{result: answerWith("")}
}

// approval is the call as a person is asked for it.
func (q *ask) approval() event.ApprovalCall {
	out := event.ApprovalCall{ToolCallID: q.call.id, Name: q.call.name, Arguments: q.call.args}
	if q.approve != "" {
		out.Allowed = append(out.Allowed, string(harness.Approve))
	}
	if q.reject != "" {
		out.Allowed = append(out.Allowed, string(harness.Reject))
	}
	return out
}

// decided is the answer that a decision makes of the request.
func (q *ask) decided(d harness.Decision) (answer, error) {
	if q.form != nil {
		content, err := q.form.answer(d.Form)
		return answer{result: content}, err
	}
	i := slices.IndexFunc(d.Calls, func(c harness.CallDecision) bool { return c.ToolCallID == q.call.id })
	if i < 0 {
		return answer{}, fmt.Errorf("no verdict on call %s", q.call.id)
	}
	option := map[harness.Verdict]string{harness.Approve: q.approve, harness.Reject: q.reject}[d.Calls[i].Verdict]
	if option == "" {
		return answer{}, fmt.Errorf("verdict on call %s is not one that was offered", q.call.id)
	}
	return answer{result: answerWith(option)}, nil
}

// ask lets a request wait for a person.
func (t *turn) ask(q *ask) *answer {
	if len(t.asks) >= maxAsks {
		t.fail(errTooMuch)
		return q.cancelled()
	}
	t.asks = append(t.asks, q)
	t.stirred()
	return nil
}

// stirred tells the driver that the agent is not quiet.
func (t *turn) stirred() {
	if len(t.asks) == 0 {
		return
	}
	select {
	case t.stir <- struct{}{}:
	default:
	}
}

// withdraw forgets a request that the agent no longer wants answered.
func (t *turn) withdraw(id json.RawMessage) {
	t.asks = slices.DeleteFunc(t.asks, func(q *ask) bool { return bytes.Equal(q.id, id) })
}

// showCall makes sure that the call for which permission is asked is in the stream, with what it wants to do. Nil:
// there is no such call to decide on.
func (t *turn) showCall(asked ToolCall) *call {
	tr := t.translator
	if _, known := tr.known(asked.ID); !known {
		// Some agents ask before they tell of the call.
		events, err := tr.toolCall(update{
			ToolCallID: asked.ID, Name: asked.Name, Title: asked.Title, Kind: asked.Kind, RawInput: asked.RawInput,
			Status: statusInProgress, Meta: asked.Meta,
		})
		t.yield(steps(events))
		t.fail(err)
	}
	c, known := tr.known(asked.ID)
	if !known || c.ended {
		return nil
	}
	if !c.shown && !absent(asked.RawInput) {
		c.input = asked.RawInput
	}
	t.yield(steps(tr.showInput(c)))
	return c
}

// together picks the requests that a person is asked at once: the oldest form, or the permissions, once for a call.
// The rest waits for another interrupt.
func together(asks []*ask) (now, later []*ask) {
	if asks[0].form != nil {
		return asks[:1:1], asks[1:]
	}
	asked := map[*call]bool{}
	for _, q := range asks {
		if q.form != nil || asked[q.call] || len(now) >= maxAskedCalls {
			later = append(later, q)
			continue
		}
		asked[q.call] = true
		now = append(now, q)
	}
	return now, later
}

// interrupt is the event that asks a person.
func (t *translator) interrupt(asks []*ask) (*event.InterruptRequested, bool) {
	d := event.InterruptRequested{Kind: event.InterruptApproval}
	if asks[0].form != nil {
		d = asks[0].form.request()
	} else {
		for _, q := range asks {
			d.Calls = append(d.Calls, q.approval())
		}
	}
	d, ok := t.showable(d)
	return &d, ok
}
