package agent

import (
	"encoding/json"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// Severity of an issue.
type Severity string

// Severities. Only an ERROR makes a draft invalid.
const (
	SeverityError   Severity = "ERROR"
	SeverityWarning Severity = "WARNING"
	SeverityInfo    Severity = "INFO"
)

// Step of the builder's wizard that an issue belongs to.
type Step string

// Wizard steps.
const (
	StepBasic        Step = "BASIC"
	StepInstructions Step = "INSTRUCTIONS"
	StepTools        Step = "TOOLS"
	StepSkills       Step = "SKILLS"
	StepAdvanced     Step = "ADVANCED"
)

// Issue is one thing that a report says about a draft.
type Issue struct {
	Path       string // stable field path: model.provider, harness.options.temperature
	Step       Step
	Code       string // HARNESS_UNKNOWN, OPTION_INVALID, ...
	Severity   Severity
	Message    string
	Capability harness.Capability // where the issue is about one
	Level      harness.Level      // what the harness offers of it
	Fixes      []Fix
}

// Fix is a change of the draft that a person may confirm: data only.
type Fix struct {
	Label string
	Path  string
	Value json.RawMessage // null removes the field
}

// Impact says what a save does to existing conversations.
type Impact struct {
	PinnedConversations int  // stay on the version they have; counted up to 1,000
	HarnessChanged      bool // the save would change the harness of an agent with conversations
}

// Report is the answer to a draft.
type Report struct {
	Valid           bool
	Normalised      Blueprint
	Fingerprint     string
	CatalogRevision string
	Capabilities    map[harness.Capability]harness.Level // effective
	Issues          []Issue
	Impact          Impact
}
