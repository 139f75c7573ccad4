package driver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// options are the harness options of a blueprint. adapters/claude_agent_sdk/options.json describes them.
type options struct {
	Tools            []string `json:"tools"`
	MaxTurns         int      `json:"maxTurns"`
	SystemPromptMode string   `json:"systemPromptMode"`
}

// Tools are the native tools that an agent can have; those of the network are not among them. DefaultTools are those
// that one has when its options do not say.
var (
	Tools        = []string{"Read", "Write", "Edit", "NotebookEdit", "Glob", "Grep", "Bash", "AskUserQuestion"}
	DefaultTools = []string{"Read", "Write", "Edit", "Glob", "Grep", "AskUserQuestion"}
)

// Bounds and words of the options.
const (
	MaxTurns      = 500
	PromptAppend  = "append"
	PromptReplace = "replace"
)

// readOptions checks the options again: the engine's schema may be another version's.
func readOptions(raw json.RawMessage) (options, error) {
	o := options{Tools: slices.Clone(DefaultTools), SystemPromptMode: PromptAppend}
	if len(bytes.TrimSpace(raw)) == 0 {
		return o, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return o, badConstruction("The harness options are not what the harness takes.", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return o, badConstruction("The harness options are not one JSON object.", err)
	}
	for _, t := range o.Tools {
		if !slices.Contains(Tools, t) {
			return o, badConstruction("The harness option tools names a tool that an agent cannot have.", fmt.Errorf("tool %q", t))
		}
	}
	if o.MaxTurns < 0 || o.MaxTurns > MaxTurns {
		return o, badConstruction(fmt.Sprintf("The harness option maxTurns has to be from 1 to %d.", MaxTurns), nil)
	}
	if o.SystemPromptMode != PromptAppend && o.SystemPromptMode != PromptReplace {
		return o, badConstruction("The harness option systemPromptMode has to be append or replace.", nil)
	}
	return o, nil
}

// sessionParams is the `_meta` of session/new and session/resume, as the bridge reads it.
type sessionParams struct {
	SystemPrompt any          `json:"systemPrompt,omitempty"` // text, or appendedPrompt
	ClaudeCode   claudeParams `json:"claudeCode"`
}

type appendedPrompt struct {
	Append string `json:"append"`
}

type claudeParams struct {
	Options queryOptions `json:"options"`
}

// queryOptions are the options of the SDK's query.
type queryOptions struct {
	Tools           []string `json:"tools"`
	MaxTurns        int      `json:"maxTurns,omitempty"`
	Model           string   `json:"model,omitempty"`
	SettingSources  []string `json:"settingSources"` // none: a workspace must not grant itself permissions, hooks or servers
	StrictMCPConfig bool     `json:"strictMcpConfig"`
	Suggestions     bool     `json:"promptSuggestions"` // would call the model after each turn
	Verbatim        bool     `json:"verbatimPrompts"`   // a message is a message: no command of the harness, no mention of files
	NoBypass        bool     `json:"allowDangerouslySkipPermissions"`
	Title           string   `json:"title"` // one is made by the model otherwise
}

func sessionMeta(c harness.Construction) (any, error) {
	o, err := readOptions(c.Options)
	if err != nil {
		return nil, err
	}
	p := sessionParams{ClaudeCode: claudeParams{Options: queryOptions{
		Tools: o.Tools, MaxTurns: o.MaxTurns, Model: c.Model.ID, SettingSources: []string{}, StrictMCPConfig: true, Verbatim: true, Title: "conversation",
	}}}
	if o.Tools == nil {
		p.ClaudeCode.Options.Tools = []string{}
	}
	switch {
	case c.SystemPrompt == "":
	case o.SystemPromptMode == PromptReplace:
		p.SystemPrompt = c.SystemPrompt
	default:
		p.SystemPrompt = appendedPrompt{Append: c.SystemPrompt}
	}
	return p, nil
}
