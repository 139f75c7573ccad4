// Package id makes the opaque identifiers that clients see.
package id

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"

	"github.com/oklog/ulid/v2"
)

// MaxLength is the longest identifier, in bytes, that any boundary accepts.
const MaxLength = 128

// Prefixes of the identifiers, one a noun. An identifier is prefix + "_" + lower-case letters and digits.
const (
	Agent   = "agt"
	Session = "ses"
	Run     = "run"
	Worker  = "wrk"
	Boot    = "eng"
	Log     = "log"

	Interrupt  = "int"
	Attachment = "att"
)

// OfInterrupt is the id of the interrupt that ended a run: a run ends in at most one, so each tells the other.
func OfInterrupt(runID string) string { return Interrupt + strings.TrimPrefix(runID, Run) }

// RunOfInterrupt is the run that the interrupt ended; false when s is not the id of an interrupt.
func RunOfInterrupt(s string) (string, bool) {
	if !Valid(Interrupt, s) {
		return "", false
	}
	return Run + strings.TrimPrefix(s, Interrupt), true
}

var lower = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// New returns a fresh identifier: the prefix and a ULID (sorted by creation time to the millisecond).
func New(prefix string) string {
	return prefix + "_" + strings.ToLower(ulid.MustNew(ulid.Now(), rand.Reader).String())
}

// Keyed returns the identifier that belongs to the parts under the secret key: the same parts give the same
// identifier, and nobody without the key can compute or guess it. Parts are length-prefixed before they are
// hashed, so no two lists of parts collide by concatenation.
func Keyed(prefix string, key []byte, parts ...string) string {
	mac := hmac.New(sha256.New, key)
	for _, p := range parts {
		_, _ = fmt.Fprintf(mac, "%d:%s", len(p), p) // a hash takes every write
	}
	return prefix + "_" + lower.EncodeToString(mac.Sum(nil)[:20])
}

// Valid reports whether s looks like an identifier with the prefix: bounded, and only lower-case letters and
// digits after the underscore. It says nothing about existence.
func Valid(prefix, s string) bool {
	rest, ok := strings.CutPrefix(s, prefix+"_")
	if !ok || rest == "" || len(s) > MaxLength {
		return false
	}
	for _, c := range rest {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}
