package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// hasForms are the harnesses that ask with forms.
func hasForms(m manner) bool { return m.form != nil }

// order is a form with a field of each kind.
var order = []enginetest.FormField{
	{Name: "name", Label: "Your name", Kind: "string", Required: true},
	{Name: "count", Kind: "number", Required: true},
	{Name: "urgent", Kind: "boolean"},
	{Name: "colour", Kind: "choice", Choices: []string{"red", "green"}},
}

// TestForm asks a person for values of every kind; the agent gets those that were given.
func TestForm(t *testing.T) {
	onEach(t, hasForms, func(t *testing.T, m manner) {
		ctx := bounded(t)
		c := clientOf(t, sharedEngine(t))
		agent := newAgent(ctx, t, c, m.harness)
		first, q := interrupted(ctx, t, c, agent.ID, "", m.form("What shall it be?", order...))
		if q.Kind != enginetest.KindForm || q.Prompt != "What shall it be?" || canonical(q.Fields) != canonical(order) {
			t.Fatalf("the question is %+v, want the form as the agent asked it", q)
		}
		// Whatever the order of the keys, and with a value left out that need not be given.
		values := `{"colour":"green","name":"Ada Lovelace","count":2.5}`
		second, events := decide(ctx, t, c, q, enginetest.Decision{Form: json.RawMessage(values)})
		wantFinished(t, events)
		heard := enginetest.Text(events)
		for _, e := range enginetest.Find(events, enginetest.ToolFinished) {
			heard += e.Result
		}
		for _, value := range []string{"Ada Lovelace", "2.5", "green"} {
			if !strings.Contains(heard, value) {
				t.Errorf("the agent heard %q, %s is not in it", heard, value)
			}
		}
		wantIdle(ctx, t, c, first.SessionID)
		wantInterrupt(ctx, t, c, first.ID, "RESUMED", second.ID)

		again, err := c.Resume(ctx, q, enginetest.Decision{Form: json.RawMessage(`{"count":2.50, "name":"Ada Lovelace", "colour":"green"}`)})
		if err != nil || again == nil || again.ID != second.ID {
			t.Fatalf("the same values spelt otherwise give %+v (%v), want run %s", again, err, second.ID)
		}
		_, err = c.Resume(ctx, q, enginetest.Decision{Form: json.RawMessage(`{"count":3, "name":"Ada Lovelace"}`)})
		wantConflict(t, err, "RESUMED")
	})
}

// TestBadForms refuses values that do not answer the form, names the field, and lets the person try again.
func TestBadForms(t *testing.T) {
	onEach(t, hasForms, func(t *testing.T, m manner) {
		ctx := bounded(t)
		c := clientOf(t, sharedEngine(t))
		agent := newAgent(ctx, t, c, m.harness)
		first, q := interrupted(ctx, t, c, agent.ID, "", m.form("What shall it be?", order...))
		const form = "input.decision.form"
		for values, field := range map[string]string{
			`[]`:                         form,
			`"Ada"`:                      form,
			`{"count":1}`:                form + ".name",
			`{"name":null,"count":1}`:    form + ".name",
			`{"name":7,"count":1}`:       form + ".name",
			`{"name":"Ada","count":"1"}`: form + ".count",
			`{"name":"Ada","count":1,"urgent":"yes"}`:                  form + ".urgent",
			`{"name":"Ada","count":1,"colour":"blue"}`:                 form + ".colour",
			`{"name":"Ada","count":1,"more":1}`:                        form,
			`{"name":"` + strings.Repeat("a", 70_000) + `","count":1}`: form,
		} {
			_, err := c.Resume(ctx, q, enginetest.Decision{Form: json.RawMessage(values)})
			if enginetest.Code(err) != "BAD_USER_INPUT" || enginetest.Field(err) != field {
				t.Errorf("%.60s: got %v at %q, want BAD_USER_INPUT at %s", values, err, enginetest.Field(err), field)
			}
		}
		_, err := c.Resume(ctx, q, enginetest.Decision{Calls: []enginetest.CallDecision{{ToolCallID: "c", Verdict: enginetest.Verdict{Approve: true}}}})
		if enginetest.Code(err) != "BAD_USER_INPUT" {
			t.Errorf("verdicts on a form give %v, want BAD_USER_INPUT", err)
		}
		_, events := decide(ctx, t, c, q, enginetest.Decision{Form: json.RawMessage(`{"name":"Ada","count":1,"urgent":true}`)})
		wantFinished(t, events)
		wantIdle(ctx, t, c, first.SessionID)
	})
}

// TestQuestionOfClaude answers the form that Claude's own tool for questions makes.
func TestQuestionOfClaude(t *testing.T) {
	needHarness(t, claudeAgentSDK)
	ctx := bounded(t)
	c := clientOf(t, sharedEngine(t))
	agent := newAgent(ctx, t, c, claudeAgentSDK)
	first, q := interrupted(ctx, t, c, agent.ID, "", `[[tool AskUserQuestion {"questions":[{"question":"Which colour?","header":"Colour","multiSelect":false,`+
		`"options":[{"label":"Red","description":"warm"},{"label":"Blue","description":"cold"}]}]}]]`)
	if q.Kind != enginetest.KindForm || len(q.Fields) == 0 || q.Fields[0].Kind != "choice" || canonical(q.Fields[0].Choices) != `["Red","Blue"]` {
		t.Fatalf("the question is %+v, want a choice of two colours", q)
	}
	field := q.Fields[0].Name
	if _, err := c.Resume(ctx, q, enginetest.Decision{Form: json.RawMessage(`{"` + field + `":"Green"}`)}); enginetest.Field(err) != "input.decision.form."+field {
		t.Fatalf("another colour gives %v, want it refused", err)
	}
	second, events := decide(ctx, t, c, q, enginetest.Decision{Form: json.RawMessage(`{"` + field + `":"Blue"}`)})
	wantFinished(t, events)
	heard := enginetest.Text(events)
	for _, e := range enginetest.Find(events, enginetest.ToolFinished) {
		heard += e.Result
	}
	if !strings.Contains(heard, "Blue") {
		t.Fatalf("the agent heard %q, the answer is not in it", heard)
	}
	wantInterrupt(ctx, t, c, first.ID, "RESUMED", second.ID)
	wantIdle(ctx, t, c, first.SessionID)
}
