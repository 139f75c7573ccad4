package acp

import "encoding/json"

// Permission is a request of the agent to run a tool.
type Permission struct {
	ToolCall ToolCall           `json:"toolCall"`
	Options  []PermissionOption `json:"options"`
}

// ToolCall is the part of a permission request that names what is asked for.
type ToolCall struct {
	ID       string          `json:"toolCallId"`
	Title    string          `json:"title"`
	RawInput json.RawMessage `json:"rawInput"`
	Meta     json.RawMessage `json:"_meta"`
}

// PermissionOption is one answer that the agent offers. Kind is allow_once, allow_always, reject_once or
// reject_always.
type PermissionOption struct {
	ID   string `json:"optionId"`
	Kind string `json:"kind"`
}

// PermissionPolicy chooses the id of an option, or none, which tells the agent that the request is cancelled.
type PermissionPolicy func(Permission) string

// Reject refuses this one call, by the weakest refusal that the agent offers.
func Reject(p Permission) string { return firstOfKind(p, "reject_once", "reject_always") }

// Allow permits this one call. It is for agents whose tools are confined by other means.
func Allow(p Permission) string { return firstOfKind(p, "allow_once") }

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
