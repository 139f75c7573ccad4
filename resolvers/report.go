package resolvers

import (
	"slices"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/graph/model"
)

// severityOrder puts what stands in the way first.
var severityOrder = map[agent.Severity]int{agent.SeverityError: 0, agent.SeverityWarning: 1, agent.SeverityInfo: 2}

func reportModel(r agent.Report) model.ValidationReport {
	m := model.ValidationReport{
		Valid: r.Valid, Normalised: blueprintModel(r.Normalised), Fingerprint: r.Fingerprint, CatalogRevision: r.CatalogRevision,
		Capabilities: capabilityModels(r.Capabilities), Issues: make([]model.ValidationIssue, len(r.Issues)),
		Impact: model.ValidationImpact{PinnedConversations: int64(r.Impact.PinnedConversations), HarnessChanged: r.Impact.HarnessChanged},
	}
	issues := slices.Clone(r.Issues)
	slices.SortStableFunc(issues, func(a, b agent.Issue) int { return severityOrder[a.Severity] - severityOrder[b.Severity] })
	for i, issue := range issues {
		shown := model.ValidationIssue{
			Path: issue.Path, Step: model.BuilderStep(issue.Step), Code: issue.Code, Severity: model.IssueSeverity(issue.Severity),
			Message: issue.Message, Capability: optional(string(issue.Capability)), Fixes: make([]model.ValidationFix, len(issue.Fixes)),
		}
		if issue.Level != "" {
			shown.Level = optional(model.CapabilityLevel(issue.Level))
		}
		for j, f := range issue.Fixes {
			shown.Fixes[j] = model.ValidationFix{Label: f.Label, Path: f.Path, Value: f.Value}
		}
		m.Issues[i] = shown
	}
	return m
}

// capabilityModels lists the vocabulary in its order, then keys that it does not have, by name. What a harness says
// nothing about it does not offer; nothing is listed where nothing is known.
func capabilityModels(levels map[harness.Capability]harness.Level) []model.HarnessCapability {
	ms := make([]model.HarnessCapability, 0, len(harness.Capabilities))
	if len(levels) == 0 {
		return ms
	}
	for _, c := range harness.Capabilities {
		level, known := levels[c]
		if !known {
			level = harness.Unsupported
		}
		ms = append(ms, model.HarnessCapability{Key: string(c), Level: model.CapabilityLevel(level)})
	}
	var others []harness.Capability
	for c := range levels {
		if !slices.Contains(harness.Capabilities, c) {
			others = append(others, c)
		}
	}
	slices.Sort(others)
	for _, c := range others {
		ms = append(ms, model.HarnessCapability{Key: string(c), Level: model.CapabilityLevel(levels[c])})
	}
	return ms
}
