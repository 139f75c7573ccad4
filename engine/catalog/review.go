package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/prompt"
)

// Codes of the issues that a review gives, beside those of agent.Forbidden.
const (
	CodeHarnessUnknown      = "HARNESS_UNKNOWN"
	CodeHarnessDisabled     = "HARNESS_DISABLED"
	CodeHarnessUnavailable  = "HARNESS_UNAVAILABLE"
	CodeHarnessExperimental = "HARNESS_EXPERIMENTAL"
	CodeProfileUnknown      = "PROFILE_UNKNOWN"
	CodeOptionInvalid       = "OPTION_INVALID"
	CodeModelUnknown        = "MODEL_UNKNOWN"
	CodeModelUnavailable    = "MODEL_UNAVAILABLE"
	CodeModelIgnored        = "MODEL_IGNORED"
	CodeCapability          = "CAPABILITY_UNSUPPORTED"
	CodeCapabilityEmulated  = "CAPABILITY_EMULATED"
)

// maxFixes bounds the alternatives that one issue offers.
const maxFixes = 10

// requirement is a capability that a blueprint needs of its harness. An ERROR must be offered; anything less is said
// to whoever builds the agent.
type requirement struct {
	capability harness.Capability
	path       string
	step       agent.Step
	severity   agent.Severity
	message    string
	emulated   string // what an emulation does not hold, said as INFO; empty: nothing worth saying
	fix        agent.Fix
	needed     func(agent.Blueprint, offered) bool
}

type offered = map[harness.Capability]harness.Level

func always(agent.Blueprint, offered) bool { return true }

// asks says whether a person is to be asked before tools run, and the harness has tools.
func asks(b agent.Blueprint, have offered) bool {
	return b.Tools.Approval != harness.ApproveNever && (have[harness.ToolBuiltin].Offers() || have[harness.ToolMCP].Offers())
}

var requirements = []requirement{
	{
		capability: harness.StreamText, path: "harness.id", step: agent.StepBasic, severity: agent.SeverityError,
		message: "the harness cannot stream its answers",
		needed:  always,
	},
	{
		capability: harness.RuntimeCancel, path: "limits.maxRunSeconds", step: agent.StepAdvanced, severity: agent.SeverityError,
		message: "the harness cannot be stopped, so a time limit would not hold",
		fix:     agent.Fix{Label: "Remove the limit", Path: "limits.maxRunSeconds", Value: json.RawMessage(`null`)},
		needed:  func(b agent.Blueprint, _ offered) bool { return b.Limits.MaxRunSeconds > 0 },
	},
	{
		capability: harness.InterruptToolApproval, path: "tools.approval", step: agent.StepTools, severity: agent.SeverityError,
		message:  "the harness cannot ask before it uses a tool",
		emulated: "a call that waits for a person is lost when its worker is; the conversation then goes on without it",
		fix:      agent.Fix{Label: "Let tools run without asking", Path: "tools.approval", Value: value(string(harness.ApproveNever))},
		needed:   asks,
	},
	{
		capability: harness.SessionMultiTurn, path: "harness.id", step: agent.StepBasic, severity: agent.SeverityWarning,
		message: "the harness forgets each turn, so every message starts afresh",
		needed:  always,
	},
	{
		capability: harness.ThreadDurableCommit, path: "harness.id", step: agent.StepBasic, severity: agent.SeverityInfo,
		message: "conversations are kept where they run, and are not yet committed elsewhere",
		needed:  always,
	},
}

// Review implements agent.Reviewer. It writes nothing and calls nobody: the catalog knows everything that it needs.
// The report bears the revision of the blueprint's harness.
func (c *Catalog) Review(_ context.Context, b agent.Blueprint) agent.Report {
	r := agent.Report{Normalised: b, CatalogRevision: c.HarnessRevision(b.Harness.ID)}
	r.Issues = c.reviewHarness(b, &r)
	r.Issues = append(r.Issues, reviewPrompt(b)...)
	r.Issues = append(r.Issues, agent.Forbidden(b)...)
	r.Valid = !slices.ContainsFunc(r.Issues, func(i agent.Issue) bool { return i.Severity == agent.SeverityError })
	return r
}

func (c *Catalog) reviewHarness(b agent.Blueprint, r *agent.Report) []agent.Issue {
	issue := agent.Issue{Path: "harness.id", Step: agent.StepBasic, Severity: agent.SeverityError}
	e, ok := c.Entry(b.Harness.ID)
	if !ok {
		issue.Code = CodeHarnessUnknown
		issue.Message = fmt.Sprintf("the harness %s is not in this deployment's catalog", b.HarnessID())
		issue.Fixes = c.otherHarnesses(b.HarnessID())
		r.Capabilities = map[harness.Capability]harness.Level{}
		return []agent.Issue{issue}
	}
	r.Capabilities = effective(e)
	var out []agent.Issue
	usable := false
	switch {
	case !e.Enabled, e.Availability == harness.Disabled:
		issue.Code = CodeHarnessDisabled
		issue.Message = fmt.Sprintf("%s is disabled in this deployment", e.Descriptor.DisplayName)
		issue.Fixes = c.otherHarnesses(e.Descriptor.ID)
		out = append(out, issue)
	case e.Availability == harness.Unhealthy:
		usable = true
		issue.Code, issue.Severity = CodeHarnessUnavailable, agent.SeverityWarning
		issue.Message = fmt.Sprintf("%s does not answer at the moment; runs are refused until it does", e.Descriptor.DisplayName)
		out = append(out, issue)
	case e.Availability != harness.Available:
		issue.Code = CodeHarnessUnavailable
		issue.Message = fmt.Sprintf("%s cannot run in this deployment (%s)", e.Descriptor.DisplayName, e.Availability)
		issue.Fixes = c.otherHarnesses(e.Descriptor.ID)
		out = append(out, issue)
	default:
		usable = true
	}
	if usable && e.Certification == harness.Experimental {
		out = append(out, agent.Issue{
			Path: "harness.id", Step: agent.StepBasic, Code: CodeHarnessExperimental, Severity: agent.SeverityInfo,
			Message: fmt.Sprintf("%s is experimental here: it has no certification evidence", e.Descriptor.DisplayName),
		})
	}
	out = append(out, reviewProfile(b, e)...)
	out = append(out, c.known[e.Descriptor.ID].options.review(b.Harness.Options)...)
	out = append(out, c.reviewModel(b, e)...)
	if usable { // otherwise everything is unavailable, which has been said
		out = append(out, reviewCapabilities(b, r.Capabilities)...)
	}
	return out
}

// effective fills the vocabulary: what is not declared is unsupported, and what cannot run here is unavailable.
func effective(e Entry) map[harness.Capability]harness.Level {
	out := make(map[harness.Capability]harness.Level, len(harness.Capabilities))
	for _, key := range harness.Capabilities {
		level, ok := e.Descriptor.Capabilities[key]
		switch {
		case !ok:
			level = harness.Unsupported
		case level.Offers() && standing(e.Availability) != harness.Available:
			level = harness.Unavailable
		}
		out[key] = level
	}
	return out
}

// otherHarnesses are the fixes that choose another harness: enabled and available ones.
func (c *Catalog) otherHarnesses(not string) []agent.Fix {
	var out []agent.Fix
	for _, e := range c.Entries() {
		if e.Enabled && e.Availability == harness.Available && e.Descriptor.ID != not && len(out) < maxFixes {
			out = append(out, agent.Fix{Label: "Use " + e.Descriptor.DisplayName, Path: "harness.id", Value: value(e.Descriptor.ID)})
		}
	}
	return out
}

func reviewProfile(b agent.Blueprint, e Entry) []agent.Issue {
	if b.Harness.ProfileID == "" || slices.ContainsFunc(e.Descriptor.Profiles, func(p harness.Profile) bool {
		return p.ID == b.Harness.ProfileID
	}) {
		return nil
	}
	const path = "harness.profileId"
	fixes := []agent.Fix{{Label: "Use the default profile", Path: path, Value: json.RawMessage(`null`)}}
	for _, p := range e.Descriptor.Profiles[:min(len(e.Descriptor.Profiles), maxFixes-1)] {
		fixes = append(fixes, agent.Fix{Label: "Use " + p.Name, Path: path, Value: value(p.ID)})
	}
	return []agent.Issue{{
		Path: path, Step: agent.StepAdvanced, Code: CodeProfileUnknown, Severity: agent.SeverityError,
		Message: fmt.Sprintf("%s has no such profile", e.Descriptor.DisplayName), Fixes: fixes,
	}}
}

func (c *Catalog) reviewModel(b agent.Blueprint, e Entry) []agent.Issue {
	if b.Model.Policy != agent.ModelConfigured {
		if b.Model.Provider == "" && b.Model.ID == "" {
			return nil
		}
		return []agent.Issue{{
			Path: "model.policy", Step: agent.StepBasic, Code: CodeModelIgnored, Severity: agent.SeverityError,
			Message: "a model is named, but the policy leaves the choice to the harness",
			Fixes: []agent.Fix{
				{Label: "Use the named model", Path: "model.policy", Value: value(string(agent.ModelConfigured))},
				{Label: "Leave the choice to the harness", Path: "model", Value: json.RawMessage(`{"policy":"HARNESS_DEFAULT"}`)},
			},
		}}
	}
	issue := agent.Issue{Path: "model.id", Step: agent.StepBasic, Code: CodeModelUnknown, Severity: agent.SeverityError}
	if !slices.ContainsFunc(e.Descriptor.Models, func(m harness.Model) bool { return m.Provider == b.Model.Provider }) {
		issue.Path = "model.provider"
		issue.Message = fmt.Sprintf("%s does not know the provider %s", e.Descriptor.DisplayName, b.Model.Provider)
		issue.Fixes = c.models(e, "")
		return []agent.Issue{issue}
	}
	if !c.reachable(b.Model.Provider) {
		issue.Path, issue.Code = "model.provider", CodeModelUnavailable
		issue.Message = fmt.Sprintf("the provider %s is not configured in this deployment", b.Model.Provider)
		issue.Fixes = c.models(e, "")
		return []agent.Issue{issue}
	}
	if !slices.ContainsFunc(e.Descriptor.Models, func(m harness.Model) bool {
		return m.Provider == b.Model.Provider && m.ID == b.Model.ID
	}) {
		issue.Message = fmt.Sprintf("%s does not know this model of %s", e.Descriptor.DisplayName, b.Model.Provider)
		issue.Fixes = c.models(e, b.Model.Provider)
		return []agent.Issue{issue}
	}
	return nil
}

func (c *Catalog) reachable(provider string) bool {
	return c.policy.Providers == nil || slices.Contains(c.policy.Providers, provider)
}

// models are the fixes that choose a usable model, of one provider where it is given.
func (c *Catalog) models(e Entry, provider string) []agent.Fix {
	var out []agent.Fix
	for _, m := range e.Descriptor.Models {
		if (provider != "" && m.Provider != provider) || !c.reachable(m.Provider) || len(out) == maxFixes {
			continue
		}
		raw, err := json.Marshal(agent.Model{Policy: agent.ModelConfigured, Provider: m.Provider, ID: m.ID})
		if err == nil {
			out = append(out, agent.Fix{Label: "Use " + m.Name, Path: "model", Value: raw})
		}
	}
	return append(out, agent.Fix{
		Label: "Leave the choice to the harness", Path: "model", Value: json.RawMessage(`{"policy":"HARNESS_DEFAULT"}`),
	})
}

func reviewCapabilities(b agent.Blueprint, have offered) []agent.Issue {
	var out []agent.Issue
	for _, q := range requirements {
		level := have[q.capability]
		emulated := level == harness.Emulated && q.emulated != ""
		if !q.needed(b, have) || level.Offers() && !emulated {
			continue
		}
		issue := agent.Issue{
			Path: q.path, Step: q.step, Code: CodeCapability, Severity: q.severity,
			Message: q.message, Capability: q.capability, Level: level,
		}
		if emulated {
			issue.Code, issue.Severity, issue.Message = CodeCapabilityEmulated, agent.SeverityInfo, q.emulated
		} else if q.fix.Label != "" {
			issue.Fixes = []agent.Fix{q.fix}
		}
		out = append(out, issue)
	}
	return out
}

func reviewPrompt(b agent.Blueprint) []agent.Issue {
	var out []agent.Issue
	const path = "prompt.system"
	if _, err := prompt.Render(b.Prompt.System, b.Prompt.Variables, prompt.Builtins{AgentName: b.Name}); err != nil {
		message := "cannot be rendered"
		if p, ok := problem.As(err); ok {
			message = p.Message
		}
		out = append(out, agent.Issue{
			Path: path, Step: agent.StepInstructions, Code: agent.CodePromptInvalid, Severity: agent.SeverityError, Message: message,
		})
	} else if used, err := prompt.Variables(b.Prompt.System); err == nil {
		for _, name := range slices.Sorted(maps.Keys(b.Prompt.Variables)) {
			if !slices.Contains(used, name) {
				out = append(out, agent.Issue{
					Path: "prompt.variables." + name, Step: agent.StepInstructions, Code: agent.CodeVariableUnused,
					Severity: agent.SeverityInfo, Message: "is not used by the prompt",
				})
			}
		}
	}
	if strings.ContainsFunc(b.Prompt.System, agent.ReordersText) {
		out = append(out, agent.Issue{
			Path: path, Step: agent.StepInstructions, Code: agent.CodeDirectionMarks, Severity: agent.SeverityWarning,
			Message: "holds characters that change the direction of text, so it may read otherwise than it is",
		})
	}
	return out
}

// value is the JSON text of a string.
func value(s string) json.RawMessage {
	raw, _ := json.Marshal(s) // a string always encodes
	return raw
}
