package worker

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/id"
)

// hashPattern is a SHA-256 in hexadecimal.
var hashPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

func validateHead(field string, h harness.Head) error {
	switch {
	case h.Rev < 0:
		return bad(field+".rev", "negative")
	case (h.Rev > 0) != (h.Hash != ""):
		return bad(field+".hash", "a head has both a revision and a hash, or neither")
	case h.Hash != "" && !hashPattern.MatchString(h.Hash):
		return bad(field+".hash", "not a hexadecimal SHA-256")
	}
	return nil
}

func validateFiles(files []harness.File) error {
	if len(files) > MaxFiles {
		return bad("files", "too many")
	}
	total := 0
	for i, f := range files {
		field := "files." + strconv.Itoa(i)
		switch {
		case f.Name == "" || len(f.Name) > 255 || !plain(f.Name):
			return bad(field+".name", "not a file's name")
		case f.MediaType == "" || len(f.MediaType) > 127 || !plain(f.MediaType):
			return bad(field+".mediaType", "not a media type")
		}
		if total += len(f.Data); total > harness.MaxFilesBytes {
			return bad(field+".data", "all files together are too large")
		}
	}
	return nil
}

func validateResume(r harness.Resume) error {
	d := r.Decision
	switch {
	case !idPattern.MatchString(r.RunID):
		return bad("resume.runId", "not a run id")
	case r.InterruptID != id.OfInterrupt(r.RunID):
		return bad("resume.interruptId", "not the interrupt of the run")
	case r.Revision != interruptRevision:
		return bad("resume.revision", "must be 1")
	case (d.Form == nil) == (len(d.Calls) == 0):
		return bad("resume.decision", "must have either a form or calls")
	case len(d.Form) > MaxDecisionBytes:
		return bad("resume.decision.form", "too long")
	case d.Form != nil && !isObject(d.Form):
		return bad("resume.decision.form", "not a JSON object")
	case len(d.Calls) > MaxCalls:
		return bad("resume.decision.calls", "too many")
	}
	total := 0
	seen := map[string]bool{}
	for i, c := range d.Calls {
		field := "resume.decision.calls." + strconv.Itoa(i)
		switch {
		case c.ToolCallID == "" || len(c.ToolCallID) > 128 || !plain(c.ToolCallID):
			return bad(field+".toolCallId", "not an id")
		case seen[c.ToolCallID]:
			return bad(field+".toolCallId", "is there twice")
		case !slices.Contains(verdicts, c.Verdict):
			return bad(field+".verdict", "unknown verdict")
		case (c.Verdict == harness.Edit) != (c.Arguments != nil):
			return bad(field+".arguments", "belong to an edit, and to nothing else")
		case c.Arguments != nil && !isObject(c.Arguments):
			return bad(field+".arguments", "not a JSON object")
		case c.Message != "" && c.Verdict != harness.Reject:
			return bad(field+".message", "belongs to a rejection")
		case !utf8.ValidString(c.Message):
			return bad(field+".message", "not valid UTF-8")
		}
		seen[c.ToolCallID] = true
		if total += len(c.Arguments) + len(c.Message); total > MaxDecisionBytes {
			return bad(field, "the decision is too long")
		}
	}
	return nil
}

var verdicts = []harness.Verdict{harness.Approve, harness.Edit, harness.Reject}

func isObject(raw json.RawMessage) bool {
	return json.Valid(raw) && bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{"))
}
