package acp

import (
	"encoding/json"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// metaKey is the key of everything of ours in a `_meta`.
const metaKey = "harness-engine"

// Own adds the conventions of this project's own agents (worker/node) to a profile:
//
//   - session/new and session/resume carry the construction in `_meta["harness-engine"].construction`: systemPrompt,
//     model, approval and options;
//   - an update from a delegated agent carries its path in `_meta["harness-engine"].namespace`, a tool call the id of the
//     message that asked for it in `.parentMessageId`;
//   - the input of a tool_call is complete;
//   - `_harness-engine/usage` tells the tokens of the turn so far;
//   - a prompt that ends because a person has to decide says so in `_meta["harness-engine/interrupt"]`, and one that goes on
//     after the decision carries it in `_meta["harness-engine/resume"]` (interrupt.go);
//   - a notice with a code has it in `.notice`;
//   - the end of a call that a person refused has `_meta["harness-engine/rejected"]`, of one of which nobody can tell what became
//     of it `_meta["harness-engine/outcomeUnknown"]`;
//   - an error's message is safe to show and its data holds category, code, retryable and retryAfterMs.
func Own(p Profile) Profile {
	p.Meta = constructionMeta
	p.Namespace = func(raw json.RawMessage) []Delegate { return readOwnMeta(raw).Namespace }
	p.ParentMessage = func(raw json.RawMessage) string { return readOwnMeta(raw).ParentMessageID }
	p.Notice = func(raw json.RawMessage) string { return readOwnMeta(raw).Notice }
	p.InputComplete = true
	p.UsageNotification = "_" + metaKey + "/usage"
	p.TrustErrors = true
	p.Interrupts = true
	p.Rejected = func(raw json.RawMessage) bool {
		var m struct {
			Rejected bool `json:"harness-engine/rejected"`
		}
		return json.Unmarshal(raw, &m) == nil && m.Rejected
	}
	p.OutcomeUnknown = func(raw json.RawMessage) bool {
		var m struct {
			OutcomeUnknown bool `json:"harness-engine/outcomeUnknown"`
		}
		return json.Unmarshal(raw, &m) == nil && m.OutcomeUnknown
	}
	return p
}

type ownConstruction struct {
	SystemPrompt string                 `json:"systemPrompt"`
	Model        harness.ModelRef       `json:"model"`
	Approval     harness.ApprovalPolicy `json:"approval,omitempty"`
	Options      json.RawMessage        `json:"options,omitempty"`
}

func constructionMeta(c harness.Construction) (any, error) {
	return map[string]map[string]ownConstruction{
		metaKey: {"construction": {SystemPrompt: c.SystemPrompt, Model: c.Model, Approval: c.Approval, Options: c.Options}},
	}, nil
}

type ownMeta struct {
	Namespace       []Delegate `json:"namespace"`
	ParentMessageID string     `json:"parentMessageId"`
	Notice          string     `json:"notice"`
}

func readOwnMeta(raw json.RawMessage) ownMeta {
	var m map[string]json.RawMessage
	var ours ownMeta
	if json.Unmarshal(raw, &m) != nil || len(m[metaKey]) == 0 || json.Unmarshal(m[metaKey], &ours) != nil {
		return ownMeta{}
	}
	return ours
}
