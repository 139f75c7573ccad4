package acp

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
)

func TestAttachments(t *testing.T) {
	image := harness.File{Name: "a.png", MediaType: "image/png", Data: []byte{0x89, 'P', 0}}
	text := harness.File{Name: "ü b/c.md", MediaType: "text/markdown", Data: []byte("# hé\n")}
	const both = `{"promptCapabilities":{"image":true,"embeddedContext":true}}`
	for name, tc := range map[string]struct {
		offers string
		text   string
		files  []harness.File
		want   string // the prompt
		fails  string // or the message
	}{
		"none": {both, "hi", nil, `[{"type":"text","text":"hi"}]`, ""},
		"both": {both, "hi", []harness.File{image, text}, `[{"type":"image","mimeType":"image/png","data":"iVAA"},` +
			`{"type":"resource","resource":{"uri":"attachment:///%C3%BC%20b%2Fc.md","mimeType":"text/markdown","text":"# hé\n"}},{"type":"text","text":"hi"}]`, ""},
		"only a file":    {both, "", []harness.File{image}, `[{"type":"image","mimeType":"image/png","data":"iVAA"}]`, ""},
		"no images":      {`{"promptCapabilities":{"embeddedContext":true}}`, "hi", []harness.File{image}, "", "The harness does not take images."},
		"no documents":   {`{"promptCapabilities":{"image":true}}`, "hi", []harness.File{text}, "", "The harness does not take documents."},
		"says nothing":   {`{}`, "hi", []harness.File{text}, "", "The harness does not take documents."},
		"not UTF-8":      {both, "hi", []harness.File{{Name: "x", MediaType: "text/plain", Data: []byte{0xff}}}, "", "An attached document is not text in UTF-8."},
		"empty document": {both, "hi", []harness.File{{Name: "x", MediaType: "text/plain"}}, `[{"type":"resource","resource":{"uri":"attachment:///x","mimeType":"text/plain","text":""}},{"type":"text","text":"hi"}]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got string
			d, _ := opened(t, fakeProfile(), func(_ int, p *program) {
				m, _ := p.next()
				p.result(m.ID, `{"protocolVersion":1,"agentCapabilities":`+tc.offers+`}`)
				p.serve(func(p *program, m message) {
					var params struct{ Prompt json.RawMessage }
					if err := json.Unmarshal(m.Params, &params); err != nil {
						t.Error(err)
					}
					got = string(params.Prompt)
					p.result(m.ID, `{"stopReason":"end_turn"}`)
				})
			})
			r := play(t, d, newRecorder(), harness.Turn{RunID: "run_1", Text: tc.text, Files: tc.files})
			if got != tc.want {
				t.Errorf("prompt %s\nwant %s", got, tc.want)
			}
			failed, _ := r.terminal(t).(event.RunError)
			if failed.Message != tc.fails || tc.fails != "" && (failed.Code != "attachment_not_supported" || failed.Category != event.CategoryConfiguration) {
				t.Errorf("ended as %+v", r.terminal(t))
			}
		})
	}
}

// TestTheLargestAttachmentsFit into one line to the agent.
func TestTheLargestAttachmentsFit(t *testing.T) {
	caps := promptCapabilities{Image: true, EmbeddedContext: true}
	for name, f := range map[string]harness.File{
		"image": {MediaType: "image/png", Data: make([]byte, harness.MaxFilesBytes)},
		"text":  {MediaType: "text/plain", Data: bytes.Repeat([]byte{'"'}, harness.MaxFilesBytes/2)},
	} {
		blocks, err := caps.prompt(harness.Turn{Text: "hi", Files: []harness.File{f}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (outgoing{ID: 1, Method: "session/prompt", Params: promptParams{Prompt: blocks}}).encode(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
