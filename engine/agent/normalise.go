package agent

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/gowebpki/jcs"
	"golang.org/x/text/unicode/norm"

	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/problem"
)

// HarnessID is the harness that the blueprint runs on: its own, or harness.Default where it names none. The stored
// blueprint is not rewritten, so a later default is followed.
func (b Blueprint) HarnessID() string {
	if b.Harness.ID == "" {
		return harness.Default
	}
	return b.Harness.ID
}

// Normalise returns the blueprint in the one form in which it is validated, fingerprinted and stored: white space
// trimmed from names and ids, text in Unicode NFC, options in canonical JSON (RFC 8785), what is absent or empty
// absent, and the model and approval policies stated. It is idempotent. The only errors are those of options that are no JSON; what
// is wrong with the rest is Check's to say.
func Normalise(b Blueprint) (Blueprint, error) {
	b.Name = norm.NFC.String(strings.TrimSpace(b.Name))
	b.Slug = strings.TrimSpace(b.Slug)
	b.Description = norm.NFC.String(strings.TrimSpace(b.Description))
	b.Harness.ID = strings.TrimSpace(b.Harness.ID)
	b.Harness.ProfileID = strings.TrimSpace(b.Harness.ProfileID)
	b.Model.Provider = strings.TrimSpace(b.Model.Provider)
	b.Model.ID = strings.TrimSpace(b.Model.ID)
	b.Prompt.System = norm.NFC.String(b.Prompt.System)
	if b.Model.Policy == "" {
		b.Model.Policy = ModelHarnessDefault
	}
	if b.Tools.Approval == "" {
		b.Tools.Approval = harness.ApproveSensitive
	}
	vars := b.Prompt.Variables
	b.Prompt.Variables = nil
	if len(vars) > 0 && len(vars) <= MaxVariables {
		b.Prompt.Variables = make(map[string]string, len(vars))
		for k, v := range vars {
			b.Prompt.Variables[k] = norm.NFC.String(v)
		}
	} else if len(vars) > 0 {
		b.Prompt.Variables = vars
	}
	options, err := normaliseOptions(b.Harness.Options)
	if err != nil {
		return b, err
	}
	b.Harness.Options = options
	return b, nil
}

// normaliseOptions gives the canonical JSON of an object, and nil for one that is absent, null or empty.
func normaliseOptions(raw json.RawMessage) (json.RawMessage, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil, nil
	}
	if err := checkOptions(raw); err != nil {
		return nil, err
	}
	canonical, err := jcs.Transform(raw)
	if err != nil {
		return nil, problem.Field(optionsField, "is not well-formed JSON with distinct keys").Because(err)
	}
	if bytes.Equal(canonical, []byte("{}")) {
		return nil, nil
	}
	return canonical, nil
}
