package acp

import (
	"encoding/json"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// Permission is a request of the agent to run a tool.
type Permission struct {
	ToolCall ToolCall           `json:"toolCall"`
	Options  []PermissionOption `json:"options"`

	Tool      string `json:"-"` // the tool's name, as the call's tool.started gives it
	Workspace string `json:"-"` // the only folder that the agent's tools may touch
}

// ToolCall is the part of a permission request that names what is asked for.
type ToolCall struct {
	ID       string          `json:"toolCallId"`
	Name     string          `json:"name"`
	Title    string          `json:"title"`
	Kind     string          `json:"kind"`
	RawInput json.RawMessage `json:"rawInput"`
	Meta     json.RawMessage `json:"_meta"`
}

// PermissionOption is one answer that the agent offers. Kind is allow_once, allow_always, reject_once or
// reject_always.
type PermissionOption struct {
	ID   string `json:"optionId"`
	Kind string `json:"kind"`
}

// PermissionPolicy decides on a request.
type PermissionPolicy func(harness.Construction, Permission) PermissionAnswer

// PermissionAnswer is the id of an option, or none, which tells the agent that the request is cancelled; or that a
// person is to decide.
type PermissionAnswer struct {
	Option string
	Ask    bool
}

// Reject refuses this one call, by the weakest refusal that the agent offers.
func Reject(_ harness.Construction, p Permission) PermissionAnswer {
	return PermissionAnswer{Option: firstOfKind(p, refusals...)}
}

// Allow permits this one call. It is for agents whose tools are confined by other means.
func Allow(_ harness.Construction, p Permission) PermissionAnswer {
	return PermissionAnswer{Option: firstOfKind(p, permissions...)}
}

// Ask leaves the decision to a person, once for each call.
func Ask(harness.Construction, Permission) PermissionAnswer { return PermissionAnswer{Ask: true} }

// What a decision on one call becomes. A permission for good is nobody's to give: the agent would keep it, and nothing
// would ask again.
var (
	permissions = []string{"allow_once"}
	refusals    = []string{"reject_once", "reject_always"}
)

func firstOfKind(p Permission, kinds ...string) string {
	for _, kind := range kinds {
		for _, o := range p.Options {
			if o.Kind == kind {
				return o.ID
			}
		}
	}
	return ""
}

// permissionAnswer is the result of session/request_permission.
type permissionAnswer struct {
	Outcome permissionOutcome `json:"outcome"`
}

type permissionOutcome struct {
	Outcome  string `json:"outcome"` // selected or cancelled
	OptionID string `json:"optionId,omitempty"`
}

func answerWith(option string) permissionAnswer {
	if option == "" {
		return permissionAnswer{permissionOutcome{Outcome: "cancelled"}}
	}
	return permissionAnswer{permissionOutcome{Outcome: "selected", OptionID: option}}
}
