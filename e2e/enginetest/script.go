package enginetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Step is one step of a script for the scripted harness; docs/scripted.md is its grammar.
type Step map[string]any

// Script is the message that makes the scripted harness play the steps.
func Script(steps ...Step) string {
	raw, err := json.Marshal(steps)
	if err != nil {
		panic(fmt.Sprintf("a step does not encode: %v", err)) // a mistake in the program
	}
	return string(raw)
}

// Say is one message, a delta a word.
func Say(text string) Step { return Step{"text": text} }

// SayOften is one message that says a word, with its space, n times: a delta each, each after a pause.
func SayOften(word string, n int, pause time.Duration) Step {
	return paced(strings.Repeat(word, n), pause)
}

// Count is one message that counts to n, a delta each, each after a pause; Counted is its text.
func Count(n int, pause time.Duration) Step { return paced(Counted(n), pause) }

// CountHeld is Count whose last word waits until Engine.Release: on a machine of any speed the turn is at work until then.
func CountHeld(n int, pause time.Duration) Step {
	return Step{"text": map[string]any{"value": Counted(n), "every_ms": pause.Milliseconds(), "until": gate}}
}

// CallHeld is Call that returns after Engine.Release.
func CallHeld(name, id, result string) Step {
	return Step{"tool": map[string]any{"name": name, "id": id, "until": gate, "result": result}}
}

// gate is the file in the workspace that what is held waits for.
const gate = "go"

// Counted is the text of Count.
func Counted(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d ", i+1)
	}
	return b.String()
}

func paced(text string, pause time.Duration) Step {
	return Step{"text": map[string]any{"value": text, "every_ms": pause.Milliseconds()}}
}

// Reason is one span of reasoning.
func Reason(text string) Step { return Step{"reasoning": text} }

// Call is one tool call that returns; args is a JSON object.
func Call(name, args, result string) Step {
	return Step{"tool": map[string]any{"name": name, "arguments": json.RawMessage(args), "result": result}}
}

// Fail ends the turn with an error.
func Fail(category, code string) Step {
	return Step{"error": map[string]any{"category": category, "code": code, "message": "The script says so."}}
}

// Hang keeps the turn open until it is cancelled.
func Hang() Step { return Step{"hang": true} }

// Exit ends the worker process in mid-turn.
func Exit() Step { return Step{"exit": 1} }

// FailSnapshot makes the thread's state one that cannot be packed.
func FailSnapshot() Step { return Step{"snapshot_fail": true} }

// HoldEnd keeps the turn from ending for so long, up to 5 s, once its last event is on its way.
func HoldEnd(d time.Duration) Step { return Step{"hang_before_end": d.Milliseconds()} }

// Recall says what was said in earlier turns.
func Recall() Step { return Step{"recall": true} }

// Ask waits for a person's word on calls of write_file, one for each file, which a script only shows.
func Ask(files ...string) Step {
	calls := make([]map[string]any, len(files))
	for i, f := range files {
		calls[i] = map[string]any{"name": "write_file", "arguments": WriteArguments(f, "kept words"), "result": "wrote " + f}
	}
	return Step{"approval": map[string]any{"calls": calls}}
}

// WriteArguments are the arguments of write_file.
func WriteArguments(file, content string) json.RawMessage {
	raw, err := json.Marshal(struct {
		Path    string `json:"file_path"`
		Content string `json:"content"`
	}{file, content})
	if err != nil {
		panic(fmt.Sprintf("arguments do not encode: %v", err)) // strings always do
	}
	return raw
}

// AskForm waits for a person's answer to a form.
func AskForm(prompt string, fields ...FormField) Step {
	return Step{"form": map[string]any{"prompt": prompt, "fields": fields}}
}
