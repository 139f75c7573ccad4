package acp

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/harness-engine/harness-engine/engine/harness"
)

const askedForm = `{"sessionId":"native-1","mode":"form","message":"Tell me.","requestedSchema":{"type":"object","required":["zip","when"],"properties":{` +
	`"zip":{"type":"string","title":"Code","description":"of the town"},"amount":{"type":"number"},"count":{"type":"integer","description":"How many"},"sure":{"type":"boolean"},` +
	`"when":{"type":"string","enum":["now","later"]},"who":{"type":"string","title":"Who","oneOf":[{"const":"a1","title":"Ann"},{"const":"b2","title":"Bob"}]},` +
	`"toppings":{"type":"array","title":"With","items":{"anyOf":[{"const":"c","title":"Cheese"},{"const":"h","title":"Ham"}]}}}}}`

func TestForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := opened(t, asking(), func(_ int, p *program) {
			p.serve(func(p *program, m message) {
				p.call("a")
				p.ask("a")
				p.send(`{"jsonrpc":"2.0","id":"form","method":"elicitation/create","params":%s}`, askedForm)
				expect(t, p.answers(1), answered("a", "y"))
				p.done("a", "completed")
				expect(t, p.answers(1), `"form" {"action":"accept","content":{"amount":1.50,"sure":false,"toppings":["h"],"when":"later","who":"b2","zip":"8001"}}`)
				p.result(m.ID, `{"stopReason":"end_turn"}`)
			})
		})
		first := play(t, d, newRecorder(), turnOf("hi")) // the permission is older
		second := play(t, d, first.continuing(t), first.resume("run_2", "run_1", decide("a=approve")))
		compare(t, second.shapes()[1:], []string{
			`interrupt.requested {"interruptId":"int_2","kind":"form_input","prompt":"Tell me.","fields":[` +
				`{"name":"zip","label":"Code: of the town","kind":"string","required":true},{"name":"amount","label":"amount","kind":"number"},` +
				`{"name":"count","label":"How many","kind":"number"},{"name":"sure","label":"sure","kind":"boolean"},` +
				`{"name":"when","label":"when","kind":"choice","required":true,"choices":["now","later"]},` +
				`{"name":"who","label":"Who","kind":"choice","choices":["Ann","Bob"]},` +
				`{"name":"toppings.1","label":"With: Cheese","kind":"boolean"},{"name":"toppings.2","label":"With: Ham","kind":"boolean"}],"revision":1}`,
			`run.interrupted {"interruptId":"int_2","reason":"form_input","thread":{"durability":"LOCAL"}}`,
		})
		decision := harness.Decision{Form: json.RawMessage(`{"zip":"8001","amount":1.50,"count":null,"sure":false,"when":"later","who":"Bob","toppings.1":false,"toppings.2":true}`)}
		third := play(t, d, second.continuing(t), second.resume("run_3", "run_2", decision))
		compare(t, third.shapes(), []string{finishedLocal})
	})
}

func TestAFormIsDeclinedOrCancelled(t *testing.T) {
	t.Run("no answers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d, _ := opened(t, asking(), func(_ int, p *program) {
				p.serve(func(p *program, m message) {
					p.send(`{"jsonrpc":"2.0","id":"form","method":"elicitation/create","params":%s}`, askedForm)
					expect(t, p.answers(1), `"form" {"action":"decline"}`)
					p.result(m.ID, `{"stopReason":"end_turn"}`)
				})
			})
			r := play(t, d, newRecorder(), turnOf("hi"))
			play(t, d, r.continuing(t), r.resume("run_2", "run_1", harness.Decision{}))
		})
	})
	t.Run("superseded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d, _ := opened(t, asking(), func(_ int, p *program) {
				p.serve(func(p *program, m message) {
					if strings.Contains(string(m.Params), "again") {
						p.result(m.ID, `{"stopReason":"end_turn"}`)
						return
					}
					p.send(`{"jsonrpc":"2.0","id":"form","method":"elicitation/create","params":%s}`, askedForm)
					expect(t, p.answers(2), "session/cancel", `"form" {"action":"cancel"}`)
					p.result(m.ID, `{"stopReason":"cancelled"}`)
				})
			})
			play(t, d, newRecorder(), turnOf("hi"))
			play(t, d, newRecorder(), harness.Turn{RunID: "run_2", Text: "again"})
		})
	})
}

// TestFormsThatCannotBeShown are declined at once, and the agent goes on.
func TestFormsThatCannotBeShown(t *testing.T) {
	for name, params := range map[string]string{
		"a page":           `{"sessionId":"native-1","mode":"url","message":"m","url":"https://example.com","elicitationId":"e"}`,
		"unknown mode":     `{"sessionId":"native-1","mode":"_dance","message":"m"}`,
		"nested":           `{"sessionId":"native-1","mode":"form","message":"m","requestedSchema":{"type":"object","properties":{"x":{"type":"object"}}}}`,
		"no schema":        `{"sessionId":"native-1","mode":"form","message":"","requestedSchema":null}`,
		"not an object":    `{"sessionId":"native-1","mode":"form","message":"m","requestedSchema":{"properties":[1]}}`,
		"name of controls": `{"sessionId":"native-1","mode":"form","message":"m","requestedSchema":{"properties":{"a\u0000":{"type":"string"}}}}`,
		"too many fields":  `{"sessionId":"native-1","mode":"form","message":"m","requestedSchema":{"properties":{` + manyProperties(65) + `}}}`,
		"name twice":       `{"sessionId":"native-1","mode":"form","message":"m","requestedSchema":{"properties":{"a":{"type":"string"},"a":{"type":"string"}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			d, _ := opened(t, asking(), func(_ int, p *program) {
				p.serve(func(p *program, m message) {
					p.send(`{"jsonrpc":"2.0","id":"form","method":"elicitation/create","params":%s}`, params)
					expect(t, p.answers(1), `"form" {"action":"decline"}`)
					p.result(m.ID, `{"stopReason":"end_turn"}`)
				})
			})
			r := play(t, d, newRecorder(), turnOf("hi"))
			compare(t, r.shapes(), []string{finishedLocal})
			if r.facts["acp.declined_forms"] == "" {
				t.Error("not counted")
			}
		})
	}
}

func manyProperties(n int) string {
	var out []string
	for i := range n {
		out = append(out, `"p`+strings.Repeat("x", i)+`":{"type":"string"}`)
	}
	return strings.Join(out, ",")
}

// FuzzForm: whatever an agent asks, a form that comes of it either cannot be shown or its answers are content for
// properties that the agent named.
func FuzzForm(f *testing.F) {
	f.Add([]byte(askedForm), []byte(`{"zip":"x","toppings.1":true,"who":"Ann"}`))
	f.Add([]byte(`{"mode":"form","requestedSchema":{"properties":{"a":{"type":"array","items":{"enum":["x","x"]}}}}}`), []byte(`{"a.1":true}`))
	f.Add([]byte(`{"mode":"form","requestedSchema":{"properties":{"a.1":{"type":"boolean"},"a":{"type":"array","items":{"enum":["x"]}}}}}`), []byte(`{"a.1":1}`))
	f.Fuzz(func(t *testing.T, asked, given []byte) {
		var e elicitation
		if json.Unmarshal(asked, &e) != nil {
			return
		}
		form, err := newForm(e)
		if err != nil {
			return
		}
		tr := newTranslator(Profile{}.withDefaults(), "run_1")
		if _, ok := tr.showable(form.request()); !ok {
			return
		}
		answer, err := form.answer(given)
		if err != nil {
			return
		}
		known := map[string]bool{}
		list, err := properties(e.Schema)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list {
			known[p.name] = true
		}
		for name := range answer.Content {
			if !known[name] {
				t.Errorf("content for %q, which was not asked", name)
			}
		}
		if _, err := json.Marshal(answer); err != nil {
			t.Error(err)
		}
	})
}

func TestFormsAreOfferedOnlyWhereTheProfileSaysSo(t *testing.T) {
	for _, forms := range []bool{true, false} {
		var offered initializeParams
		p := fakeProfile()
		p.Forms = forms
		opened(t, p, func(_ int, p *program) {
			m, _ := p.next()
			if err := json.Unmarshal(m.Params, &offered); err != nil {
				t.Error(err)
			}
			p.result(m.ID, `{"protocolVersion":1}`)
			p.serve(nil)
		})
		if (offered.ClientCapabilities.Elicitation != nil) != forms {
			t.Errorf("forms %v: offered %+v", forms, offered.ClientCapabilities)
		}
	}
}
