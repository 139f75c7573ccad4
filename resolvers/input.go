package resolvers

import (
	"unicode"
	"unicode/utf8"

	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/problem"
)

// Bounds of a client's own names: request ids, conversation ids, idempotency keys.
const maxNameBytes = 128

// checkID refuses what cannot be an id, before anything is asked or read. Whether it is one is another question.
func checkID(path, s string) error {
	if len(s) > id.MaxLength {
		return problem.Field(path, "is %d bytes, at most %d are allowed", len(s), id.MaxLength)
	}
	if !printable(s) {
		return problem.Field(path, "has characters that no id has")
	}
	return nil
}

// checkName checks a client's own name: 1 to 128 bytes of printable characters.
func checkName(path, s string) error {
	switch {
	case s == "":
		return problem.Field(path, "must not be empty")
	case len(s) > maxNameBytes:
		return problem.Field(path, "is %d bytes, at most %d are allowed", len(s), maxNameBytes)
	case !printable(s):
		return problem.Field(path, "must hold printable characters only")
	}
	return nil
}

// checkOptionalName is checkName for a name that may be absent.
func checkOptionalName(path string, s *string) (string, error) {
	if s == nil {
		return "", nil
	}
	return *s, checkName(path, *s)
}

// checkOptionalID is checkID for an id that may be absent.
func checkOptionalID(path string, s *string) (string, error) {
	if s == nil {
		return "", nil
	}
	return *s, checkID(path, *s)
}

// printable reports whether s is valid UTF-8 without control, format and private characters, surrogates and line
// breaks, which would let two names look alike.
func printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, c := range s {
		if !unicode.IsGraphic(c) || unicode.Is(unicode.Cf, c) {
			return false
		}
	}
	return true
}

// checkProse refuses what no harness should be fed: invalid UTF-8, and control characters other than tabs and line
// breaks.
func checkProse(path, s string) error {
	if !utf8.ValidString(s) {
		return problem.Field(path, "is not valid UTF-8")
	}
	for _, c := range s {
		if unicode.IsControl(c) && c != '\t' && c != '\n' && c != '\r' {
			return problem.Field(path, "holds the control character %U", c)
		}
	}
	return nil
}

// optional is nil for the zero value, for fields that are null when unknown.
func optional[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
