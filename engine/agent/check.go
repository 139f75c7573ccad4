package agent

import (
	"maps"
	"regexp"
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/problem"
)

// Bounds of a blueprint. Characters are Unicode code points.
const (
	MaxNameChars        = 80
	MaxDescriptionChars = 2000
	MaxSystemChars      = 200_000
	MaxVariables        = 64
	MaxVariableChars    = 4000
	MaxRunSeconds       = 86_400
	MinInterruptSeconds = 10
	MaxInterruptSeconds = 2_592_000 // 30 days
)

var (
	slugPattern     = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)
	variablePattern = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)
	profilePattern  = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,63}$`)
	providerPattern = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,63}$`)
	modelPattern    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$`)
)

// Check returns a problem.Field error for the first thing that makes the normalised blueprint malformed: a bound, a
// form, or text that would deceive who reads it. What a harness thinks of a well-formed blueprint is the report's.
func Check(b Blueprint) error {
	for _, check := range []error{
		text("name", b.Name, 1, MaxNameChars, oneLine),
		pattern("slug", b.Slug, slugPattern, "1 to 64 of a-z, 0-9 and -"),
		text("description", b.Description, 0, MaxDescriptionChars, manyLines),
		optional("harness.id", b.Harness.ID, harness.IDPattern, "2 to 64 of a-z, 0-9 and _, a letter first"),
		optional("harness.profileId", b.Harness.ProfileID, profilePattern, "1 to 64 of a-z, 0-9, _ and -, a letter first"),
		text("prompt.system", b.Prompt.System, 0, MaxSystemChars, prose),
		checkVariables(b.Prompt.Variables),
		checkModel(b.Model),
		checkTools(b.Tools),
		checkLimits(b.Limits),
	} {
		if check != nil {
			return check
		}
	}
	if b.Harness.Options != nil {
		return checkOptions(b.Harness.Options)
	}
	return nil
}

func checkVariables(vars map[string]string) error {
	if len(vars) > MaxVariables {
		return problem.Field("prompt.variables", "has %d variables, at most %d", len(vars), MaxVariables)
	}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if !variablePattern.MatchString(name) {
			return problem.Field("prompt.variables", "has a name that is not 1 to 64 of a-z, 0-9 and _, a letter first")
		}
		if err := text("prompt.variables."+name, vars[name], 0, MaxVariableChars, prose); err != nil {
			return err
		}
	}
	return nil
}

func checkModel(m Model) error {
	switch m.Policy {
	case ModelHarnessDefault:
		if err := optional("model.provider", m.Provider, providerPattern, "1 to 64 of a-z, 0-9, _ and -, a letter first"); err != nil {
			return err
		}
		return optional("model.id", m.ID, modelPattern, "1 to 128 of A-Z, a-z, 0-9 and ._:/@+-")
	case ModelConfigured:
		if err := pattern("model.provider", m.Provider, providerPattern, "1 to 64 of a-z, 0-9, _ and -, a letter first"); err != nil {
			return err
		}
		return pattern("model.id", m.ID, modelPattern, "1 to 128 of A-Z, a-z, 0-9 and ._:/@+-")
	}
	return problem.Field("model.policy", "must be %s or %s", ModelHarnessDefault, ModelConfigured)
}

func checkTools(t Tools) error {
	switch t.Approval {
	case harness.ApproveNever, harness.ApproveSensitive, harness.ApproveAlways:
		return nil
	}
	return problem.Field("tools.approval", "must be %s, %s or %s", harness.ApproveNever, harness.ApproveSensitive, harness.ApproveAlways)
}

func checkLimits(l Limits) error {
	for _, c := range []struct {
		path        string
		s           int64
		least, most int64
	}{
		{"limits.maxRunSeconds", l.MaxRunSeconds, 1, MaxRunSeconds},
		{"limits.interruptSeconds", l.InterruptSeconds, MinInterruptSeconds, MaxInterruptSeconds},
	} {
		if c.s != 0 && (c.s < c.least || c.s > c.most) {
			return problem.Field(c.path, "must be from %d to %d, or 0 for the operator's default", c.least, c.most)
		}
	}
	return nil
}

func pattern(path, s string, p *regexp.Regexp, form string) error {
	if !p.MatchString(s) {
		return problem.Field(path, "must be %s", form)
	}
	return nil
}

func optional(path, s string, p *regexp.Regexp, form string) error {
	if s == "" {
		return nil
	}
	return pattern(path, s, p, form)
}

// kind says what a text may hold.
type kind int

const (
	oneLine   kind = iota // a name: no control, direction or invisible characters
	manyLines             // as a name, with tabs and line breaks
	prose                 // tabs, line breaks, and direction marks of right-to-left scripts
)

// text checks length and characters. It returns error, not *problem.Error, so that nil is nil.
func text(path, s string, least, most int, k kind) error {
	if !utf8.ValidString(s) {
		return problem.Field(path, "is not valid UTF-8")
	}
	switch n := utf8.RuneCountInString(s); {
	case n < least:
		return problem.Field(path, "must not be empty")
	case n > most:
		return problem.Field(path, "has %d characters, at most %d", n, most)
	}
	if hasControl(s, k != oneLine) {
		return problem.Field(path, "holds a control character")
	}
	if k != prose && hasDeceptive(s) {
		return problem.Field(path, "holds an invisible or direction-changing character")
	}
	if least > 0 && !hasVisible(s) {
		return problem.Field(path, "must hold a visible character")
	}
	return nil
}

// hasControl finds C0 and C1 controls, DEL and noncharacters; tabs and line breaks are let through where lines are
// allowed.
func hasControl(s string, lines bool) bool {
	for _, r := range s {
		switch {
		case lines && (r == '\t' || r == '\n' || r == '\r'):
		case unicode.IsControl(r), r&0xFFFE == 0xFFFE, r >= 0xFDD0 && r <= 0xFDEF, !lines && (r == '\u2028' || r == '\u2029'):
			return true
		}
	}
	return false
}

// Joiners belong to emoji and to Persian and Indic spelling.
const zwnj, zwj = '\u200c', '\u200d'

// hasDeceptive finds format characters: bidirectional overrides and isolates, zero-width characters, tags. A name with
// them can look like another name.
func hasDeceptive(s string) bool {
	for _, r := range s {
		if r != zwj && r != zwnj && unicode.Is(unicode.Cf, r) {
			return true
		}
	}
	return false
}

// ReordersText reports whether r is one of the bidirectional controls of Unicode (UAX 9) that reorder the text around
// them. They are legitimate in prose, but can hide what a prompt says.
func ReordersText(r rune) bool {
	return r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}

func hasVisible(s string) bool {
	for _, r := range s {
		if unicode.IsGraphic(r) && !unicode.IsSpace(r) && !unicode.Is(unicode.Mn, r) {
			return true
		}
	}
	return false
}
