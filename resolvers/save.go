package resolvers

import (
	"context"
	"fmt"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/graph/model"
)

// maxDigestBytes bounds the digests that a client hands back.
const maxDigestBytes = 128

// ValidateAgent reports what a harness makes of a draft.
func (q queries) ValidateAgent(ctx context.Context, draft model.BlueprintInput, requestID string, agentID *string) (*model.ValidationReport, error) {
	if err := checkName("requestId", requestID); err != nil {
		return nil, err
	}
	who, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	b, err := blueprintOf("draft", draft)
	if err != nil {
		return nil, err
	}
	id := ""
	if agentID != nil {
		id = *agentID
	}
	report, err := q.Root.Agents.Validate(ctx, who, id, b)
	if err != nil {
		return nil, fmt.Errorf("failed to validate a draft: %w", under("draft", err))
	}
	shown := reportModel(report)
	shown.RequestID = &requestID
	return &shown, nil
}

// SaveAgent saves a draft, or says why nothing was written.
func (m mutations) SaveAgent(ctx context.Context, input model.SaveAgentInput) (model.SaveAgentResult, error) {
	who, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	b, err := blueprintOf("input.draft", input.Draft)
	if err != nil {
		return nil, err
	}
	request := agent.SaveRequest{Caller: who, Blueprint: b, Confirm: input.Confirm}
	if input.AgentID != nil {
		request.AgentID = *input.AgentID
	}
	if input.ExpectedRevision != nil {
		request.ExpectedRevision = *input.ExpectedRevision
	}
	switch {
	case request.AgentID == "" && input.ExpectedRevision != nil:
		return nil, problem.Field("input.expectedRevision", "must be absent for a new agent")
	case request.AgentID != "" && request.ExpectedRevision < 1:
		return nil, problem.Field("input.expectedRevision", "is required to change an agent, 1 or more")
	}
	if request.Fingerprint, err = checkDigest("input.fingerprint", input.Fingerprint); err != nil {
		return nil, err
	}
	if request.CatalogRevision, err = checkDigest("input.catalogRevision", input.CatalogRevision); err != nil {
		return nil, err
	}
	result, err := m.Agents.Save(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("failed to save an agent: %w", under("input.draft", err))
	}
	return saveModel(result)
}

func checkDigest(path string, s *string) (string, error) {
	if s == nil {
		return "", nil
	}
	if *s == "" || len(*s) > maxDigestBytes || !printable(*s) {
		return "", problem.Field(path, "must be 1 to %d printable characters", maxDigestBytes)
	}
	return *s, nil
}

func saveModel(result agent.SaveResult) (model.SaveAgentResult, error) {
	switch r := result.(type) {
	case agent.Saved:
		return model.SaveAgentSuccess{Agent: *agentModel(r.Agent, r.Version), Version: versionModel(r.Version)}, nil
	case agent.Failed:
		return model.ValidationFailed{Code: "VALIDATION_FAILED", Message: "the draft cannot be saved as it is", Report: reportModel(r.Report)}, nil
	case agent.Stale:
		return model.ValidationStale{Code: "VALIDATION_STALE", Message: "the draft or the catalog is not what was validated", Report: reportModel(r.Report)}, nil
	case agent.RevisionConflict:
		return model.RevisionConflict{Code: "REVISION_CONFLICT", Message: "the agent was changed meanwhile", CurrentRevision: r.Current}, nil
	case agent.SlugTaken:
		return model.SlugTaken{Code: "SLUG_TAKEN", Message: "another of your agents has this slug"}, nil
	}
	return nil, fmt.Errorf("resolvers: a save ended as %T, which the schema does not know", result)
}

// under puts the field of a blueprint's error where the API has the blueprint.
func under(path string, err error) error {
	p, ok := problem.As(err)
	if !ok || p.Code != problem.BadUserInput || len(p.Field) == 0 {
		return err
	}
	moved := *p
	moved.Field = append([]string{path}, p.Field...)
	return &moved
}
