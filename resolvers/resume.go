package resolvers

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/graph/model"
)

// maxDecidedCalls bounds the verdicts of one decision; no event that asks for more fits its bounds.
const maxDecidedCalls = 256

var verdictModels = map[harness.Verdict]model.CallVerdict{
	harness.Approve: model.CallVerdictApprove,
	harness.Edit:    model.CallVerdictEdit,
	harness.Reject:  model.CallVerdictReject,
}

// ResumeRun decides an interrupt. The refusals that a client has to handle are results, the rest are errors.
func (m mutations) ResumeRun(ctx context.Context, input model.ResumeRunInput) (model.ResumeRunResult, error) {
	who, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	key, err := checkOptionalName("input.idempotencyKey", input.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	if input.Revision < 1 {
		return nil, problem.Field("input.revision", "must be 1 or more")
	}
	decision, dismiss, err := decisionFrom("input.decision", input.Decision)
	if err != nil {
		return nil, err
	}
	result, err := m.Control.Resume(ctx, run.ResumeRequest{
		Caller: who, InterruptID: input.InterruptID, Revision: input.Revision, IdempotencyKey: key, Decision: decision, Dismiss: dismiss,
	})
	if err != nil {
		if refused, ok := refusalModel(err).(model.ResumeRunResult); ok {
			return refused, nil
		}
		return nil, fmt.Errorf("failed to resume from interrupt %s: %w", input.InterruptID, err)
	}
	shown, err := sessionModel(result.Session)
	if err != nil {
		return nil, err
	}
	success := model.ResumeRunSuccess{Session: *shown}
	if result.Run != nil {
		if success.Run, err = runModel(*result.Run); err != nil {
			return nil, err
		}
	}
	return success, nil
}

// exactlyOne checks @oneOf, which the executor checks in documents but not in variables. It returns which of the fields
// is given.
func exactlyOne(path string, fields ...oneOf) (string, error) {
	given := ""
	for _, f := range fields {
		if !f.given {
			continue
		}
		if given != "" {
			return "", problem.Field(path, "must have exactly one of its fields, and has %s and %s", given, f.name)
		}
		given = f.name
	}
	if given == "" {
		return "", problem.Field(path, "must have exactly one of its fields, not null")
	}
	return given, nil
}

// oneOf is a field of a @oneOf input, and whether it has a value.
type oneOf struct {
	name  string
	given bool
}

// decisionFrom reads a decision. Whether it answers what was asked is the coordinator's to say.
func decisionFrom(path string, in model.InterruptDecision) (d harness.Decision, dismiss bool, err error) {
	form := in.Form
	if isNull(form) {
		form = nil
	}
	which, err := exactlyOne(path, oneOf{"form", form != nil}, oneOf{"calls", in.Calls != nil}, oneOf{"dismiss", in.Dismiss != nil})
	if err != nil {
		return d, false, err
	}
	switch which {
	case "dismiss":
		if !*in.Dismiss {
			return d, false, problem.Field(path+".dismiss", "must be true")
		}
		return d, true, nil
	case "form":
		if form[0] != '{' {
			return d, false, problem.Field(path+".form", "must be an object")
		}
		d.Form = form
		return d, false, nil
	}
	if n := len(in.Calls); n == 0 || n > maxDecidedCalls {
		return d, false, problem.Field(path+".calls", "must have 1 to %d verdicts", maxDecidedCalls)
	}
	seen := make(map[string]bool, len(in.Calls))
	for i, c := range in.Calls {
		at := fmt.Sprintf("%s.calls[%d]", path, i)
		if err := checkName(at+".toolCallId", c.ToolCallID); err != nil {
			return d, false, err
		}
		if seen[c.ToolCallID] {
			return d, false, problem.Field(at+".toolCallId", "is decided twice")
		}
		seen[c.ToolCallID] = true
		verdict, err := verdictFrom(at+".decision", c.Decision)
		if err != nil {
			return d, false, err
		}
		verdict.ToolCallID = c.ToolCallID
		d.Calls = append(d.Calls, verdict)
	}
	return d, false, nil
}

// verdictFrom reads the verdict on one call.
func verdictFrom(path string, in model.CallVerdictInput) (d harness.CallDecision, err error) {
	which, err := exactlyOne(path, oneOf{"approve", in.Approve != nil}, oneOf{"edit", in.Edit != nil}, oneOf{"reject", in.Reject != nil})
	if err != nil {
		return d, err
	}
	switch which {
	case "approve":
		if !*in.Approve {
			return d, problem.Field(path+".approve", "must be true")
		}
		d.Verdict = harness.Approve
	case "edit":
		if raw := in.Edit.Arguments; len(raw) == 0 || raw[0] != '{' {
			return d, problem.Field(path+".edit.arguments", "must be an object")
		}
		d.Verdict, d.Arguments = harness.Edit, in.Edit.Arguments
	case "reject":
		d.Verdict = harness.Reject
		if in.Reject.Message == nil {
			break
		}
		if d.Message = *in.Reject.Message; len(d.Message) > run.MaxReasonBytes {
			return d, problem.Field(path+".reject.message", "is %d bytes, at most %d are allowed", len(d.Message), run.MaxReasonBytes)
		}
		if err := checkProse(path+".reject.message", d.Message); err != nil {
			return d, err
		}
	}
	return d, nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }
