package worker

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// MaxDeadline bounds the duration of one turn.
const MaxDeadline = 7 * 24 * time.Hour

func bad(field, message string) *Error {
	return &Error{Code: CodeBadRequest, Field: field, Message: message}
}

// validate checks a bind request's form. What the harness makes of the options is the driver's to say.
func (r BindRequest) validate() error {
	if s := r.BrokerSocket; s != "" && (!filepath.IsAbs(s) || len(s) > MaxSocketPath || !plain(s)) {
		return bad("brokerSocket", "must be an absolute path of at most 107 bytes")
	}
	for _, l := range []struct {
		field          string
		v, least, most int64
	}{
		{"limits.journalBytes", r.Limits.JournalBytes, minJournalBytes, maxJournalBytes},
		{"limits.journalSteps", int64(r.Limits.JournalSteps), minJournalSteps, maxJournalSteps},
		{"limits.cancelGraceMs", r.Limits.CancelGraceMs, 1, maxCancelGrace.Milliseconds()},
	} {
		if l.v != 0 && (l.v < l.least || l.v > l.most) {
			return bad(l.field, "out of bounds")
		}
	}
	c := r.Construction
	if c == nil {
		return nil
	}
	switch {
	case !harness.IDPattern.MatchString(c.Harness):
		return bad("construction.harness", "not a harness id")
	case !slices.Contains(approvals, c.Approval):
		return bad("construction.approval", "unknown approval policy")
	case len(c.SystemPrompt) > MaxPromptBytes:
		return bad("construction.systemPrompt", "too long")
	case !utf8.ValidString(c.SystemPrompt):
		return bad("construction.systemPrompt", "not valid UTF-8")
	case len(c.Options) > harness.MaxOptionsBytes:
		return bad("construction.options", "too long")
	case c.Options != nil && !json.Valid(c.Options):
		return bad("construction.options", "not valid JSON")
	case len(c.AgentID) > 128 || !plain(c.AgentID):
		return bad("construction.agentId", "not an id")
	case c.AgentVersion < 0:
		return bad("construction.agentVersion", "negative")
	case len(c.Model.Provider) > 128 || !plain(c.Model.Provider):
		return bad("construction.model.provider", "not an id")
	case len(c.Model.ID) > 256 || !plain(c.Model.ID):
		return bad("construction.model.id", "not an id")
	}
	return nil
}

var approvals = []harness.ApprovalPolicy{"", harness.ApproveNever, harness.ApproveSensitive, harness.ApproveAlways}

// normalised fills in defaults.
func (l Limits) normalised() Limits {
	if l.JournalBytes == 0 {
		l.JournalBytes = DefaultJournalBytes
	}
	if l.JournalSteps == 0 {
		l.JournalSteps = DefaultJournalSteps
	}
	if l.CancelGraceMs == 0 {
		l.CancelGraceMs = defaultCancelGrace.Milliseconds()
	}
	return l
}

func validateTurn(t harness.Turn) error {
	switch {
	case !idPattern.MatchString(t.RunID):
		return bad("runId", "not a run id")
	case len(t.Text) > MaxTextBytes:
		return bad("text", "too long")
	case !utf8.ValidString(t.Text):
		return bad("text", "not valid UTF-8")
	case len(t.Capability) > MaxCapability || !plain(t.Capability):
		return bad("capability", "not a token")
	case t.DeadlineMs < 0 || t.DeadlineMs > MaxDeadline.Milliseconds():
		return bad("deadlineMs", "out of bounds")
	}
	if err := validateHead("head", t.Head); err != nil {
		return err
	}
	if err := validateFiles(t.Files); err != nil {
		return err
	}
	if t.Resume != nil {
		if t.Text != "" || len(t.Files) > 0 {
			return bad("resume", "a turn that resumes has no message")
		}
		return validateResume(*t.Resume)
	}
	return nil
}

func (c Caller) validate() error {
	switch {
	case !idPattern.MatchString(c.Binding.SessionID):
		return bad(headerSession, "not a session id")
	case c.Binding.Epoch < 1:
		return bad(headerEpoch, "must be at least 1")
	case c.Binding.SandboxGen < 1:
		return bad(headerSandboxGen, "must be at least 1")
	case c.LeaseGen < 1:
		return bad(headerLeaseGen, "must be at least 1")
	}
	return nil
}
