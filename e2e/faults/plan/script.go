package plan

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// script draws what the scripted harness plays: one to five parts, of a tenth of a second to two seconds together. It
// begins with the key, so that each run says whose it is.
func (t *Talk) script(key string) string {
	steps := []enginetest.Step{enginetest.Say(key + " begins")}
	for range 1 + t.r.IntN(4) {
		steps = append(steps, t.step(key))
	}
	switch t.r.IntN(10) {
	case 0, 1:
		steps = append(steps, enginetest.Ask(t.files(key)...), enginetest.Say("after the word"))
	case 2:
		steps = append(steps, enginetest.AskForm("Which?", enginetest.FormField{Name: "name", Kind: "string", Required: true}))
	case 3:
		steps = append(steps, enginetest.Fail("unavailable", "as_asked"))
	}
	return enginetest.Script(steps...)
}

func (t *Talk) step(key string) enginetest.Step {
	pause := time.Duration(1+t.r.IntN(30)) * time.Millisecond
	switch t.r.IntN(8) {
	case 0:
		return enginetest.Reason("I think about " + key)
	case 1:
		return enginetest.Step{"usage": map[string]any{"input": t.r.IntN(500), "output": t.r.IntN(500)}}
	case 2:
		return enginetest.Step{"plan": []map[string]any{{"content": "step of " + key, "status": "in_progress"}}}
	case 3:
		return enginetest.Step{"warning": map[string]any{"code": "as_asked", "message": "a word on " + key}}
	case 4, 5:
		return enginetest.Step{"tool": map[string]any{
			"name": "look", "arguments": json.RawMessage(fmt.Sprintf(`{"for":%q}`, key)), "stream": t.chance(2),
			"ms": t.r.IntN(400), "result": "seen " + key,
		}}
	}
	return enginetest.Count(5+t.r.IntN(40), pause)
}

func (t *Talk) files(key string) []string {
	files := []string{key + ".txt"}
	if t.chance(2) {
		files = append(files, key+"-2.txt")
	}
	return files
}

// prompt draws what the fake model answers the Node harness: text at a pace, and a file that is written once. A path that is
// written a second time is refused by the harness's own tool, so it shows.
func (t *Talk) prompt(key string) string {
	parts := []string{key}
	if t.chance(2) {
		parts = append(parts, fmt.Sprintf(`[[tool write_file {"file_path":"/%s.md","content":"words of %s"}]] [[then]]`, key, key))
	}
	parts = append(parts, fmt.Sprintf("[[slow %d %d]]", 10+t.r.IntN(40), 10+t.r.IntN(30)))
	return strings.Join(parts, " ")
}
