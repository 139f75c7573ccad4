package run

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/session"
)

// Bounds of a start request.
const (
	MaxTextBytes           = 256 << 10
	MaxConversationIDBytes = 128
	MaxIdempotencyKeyBytes = 128
)

// BusyPolicy says what becomes of a start while another run of the conversation is active.
type BusyPolicy = session.Policy

// Busy policies.
const (
	BusyReject    = session.Reject
	BusyEnqueue   = session.Enqueue
	BusyInterrupt = session.Interrupt
)

// StartRequest asks for a run. The caller's right to use the agent has been checked.
type StartRequest struct {
	Caller         authz.Caller
	AgentID        string
	ConversationID string // empty: a conversation of its own
	Text           string
	Attachments    []file.Attachment // checked: they exist, and the caller owns them
	IdempotencyKey string            // empty: none
	Policy         BusyPolicy
}

// check refuses malformed input and names the field of the public API.
func (r StartRequest) check() error {
	switch {
	case strings.TrimSpace(r.Text) == "":
		return problem.Field("input.message.text", "must not be empty")
	case len(r.Text) > MaxTextBytes:
		return problem.Field("input.message.text", "is %d bytes, at most %d are allowed", len(r.Text), MaxTextBytes)
	}
	if err := checkText("input.message.text", r.Text); err != nil {
		return err
	}
	if err := checkName("input.conversationId", r.ConversationID, MaxConversationIDBytes); err != nil {
		return err
	}
	if err := checkName("input.idempotencyKey", r.IdempotencyKey, MaxIdempotencyKeyBytes); err != nil {
		return err
	}
	switch r.Policy {
	case BusyReject, BusyEnqueue, BusyInterrupt, "":
		return nil
	}
	return problem.Field("input.busyPolicy", "is not a busy policy")
}

// checkText refuses what no harness should be fed: invalid UTF-8 and control characters other than tab, line feed
// and carriage return.
func checkText(field, s string) error {
	if !utf8.ValidString(s) {
		return problem.Field(field, "is not valid UTF-8")
	}
	for i, c := range s {
		if unicode.Is(unicode.Cc, c) && c != '\t' && c != '\n' && c != '\r' {
			return problem.Field(field, "has the control character %U at byte %d", c, i)
		}
	}
	return nil
}

// checkName refuses a caller-made identifier that is too long or has anything but printable characters.
func checkName(field, s string, most int) error {
	if len(s) > most {
		return problem.Field(field, "is %d bytes, at most %d are allowed", len(s), most)
	}
	if !utf8.ValidString(s) {
		return problem.Field(field, "is not valid UTF-8")
	}
	for i, c := range s {
		if !unicode.IsGraphic(c) || unicode.Is(unicode.Cf, c) {
			return problem.Field(field, "has the unprintable character %U at byte %d", c, i)
		}
	}
	return nil
}

// digest is over everything that makes a repeated key the same request.
func (r StartRequest) digest() string {
	parts := []string{r.AgentID, r.ConversationID, r.Text, string(r.Policy)}
	for _, a := range r.Attachments {
		parts = append(parts, a.ID)
	}
	raw, err := json.Marshal(parts)
	if err != nil {
		panic(err) // strings always marshal
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// ResumeRequest decides an interrupt. The caller's right to decide it has been checked.
type ResumeRequest struct {
	Caller         authz.Caller
	InterruptID    string
	Revision       int64
	IdempotencyKey string // optional: an equal decision is idempotent without one
	Decision       harness.Decision
	Dismiss        bool // gives the interrupt up: nothing goes on, and Decision is empty
}

// ResumeResult is what became of a decision.
type ResumeResult struct {
	Run     *Run // that goes on; nil when the interrupt was dismissed
	Session session.Binding
}
