package broker

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/id"
)

// Bounds of capabilities.
const (
	minKeyBytes   = 32
	maxTokenBytes = 2048
)

// tokenPrefix names form and version; it is part of what is signed.
const tokenPrefix = "hcap1."

// audience keeps a capability from being of use anywhere else that shares the key.
const audience = "broker"

// Errors of a capability, from bad to well-formed but too late.
var (
	errMalformed = errors.New("capability is malformed")
	errForged    = errors.New("capability is not signed by this deployment")
	errAudience  = errors.New("capability is for something else")
	errExpired   = errors.New("capability has expired")
)

// claims are what a capability states: whom it serves, and until when.
type claims struct {
	Audience   string `json:"aud"`
	SessionID  string `json:"ses"`
	Epoch      int64  `json:"ep"`
	SandboxGen int64  `json:"gen"`
	RunID      string `json:"run"`
	ExpiryMs   int64  `json:"exp"` // Unix milliseconds; not valid from this instant on
}

// Signer mints and verifies capabilities: what a worker shows to the broker for one run of one worker generation.
// A capability is not a credential for anything else, and is worth nothing once the binding has moved on.
type Signer struct {
	key []byte
	now func() time.Time
}

// NewSigner takes the deployment's secret, at least 32 bytes; engines that share workers share it. now may be nil.
func NewSigner(key []byte, now func() time.Time) (*Signer, error) {
	if len(key) < minKeyBytes {
		return nil, fmt.Errorf("broker: the capability key has %d bytes, at least %d are needed", len(key), minKeyBytes)
	}
	if now == nil {
		now = time.Now
	}
	return &Signer{key: append([]byte(nil), key...), now: now}, nil
}

// Mint makes the capability of one run on one worker generation. The caller keeps expiry within the run's deadline.
func (s *Signer) Mint(b harness.Binding, runID string, expiry time.Time) (string, error) {
	if !id.Valid(id.Session, b.SessionID) || !id.Valid(id.Run, runID) || b.Epoch < 1 || b.SandboxGen < 1 {
		return "", fmt.Errorf("failed to mint capability of run %q: the binding is incomplete", runID)
	}
	if !expiry.After(s.now()) {
		return "", fmt.Errorf("failed to mint capability of run %s: it would be expired", runID)
	}
	payload, err := json.Marshal(claims{
		Audience: audience, SessionID: b.SessionID, Epoch: b.Epoch, SandboxGen: b.SandboxGen, RunID: runID,
		ExpiryMs: expiry.UnixMilli(),
	})
	if err != nil {
		return "", fmt.Errorf("failed to mint capability of run %s: %w", runID, err)
	}
	signed := tokenPrefix + base64.RawURLEncoding.EncodeToString(payload)
	return signed + "." + base64.RawURLEncoding.EncodeToString(s.mac(signed)), nil
}

// verify judges the signature first, in constant time, and reads nothing of an unsigned token.
func (s *Signer) verify(token string) (claims, error) {
	var c claims
	// The decoder skips line breaks: without this, one signature would have many spellings.
	if len(token) > maxTokenBytes || !strings.HasPrefix(token, tokenPrefix) || strings.ContainsAny(token, "\r\n") {
		return c, errMalformed
	}
	dot := strings.LastIndexByte(token, '.')
	if dot < len(tokenPrefix) {
		return c, errMalformed
	}
	// Strict: without it, several spellings of the last character would be the same signature.
	sum, err := base64.RawURLEncoding.Strict().DecodeString(token[dot+1:])
	if err != nil {
		return c, errMalformed
	}
	if !hmac.Equal(sum, s.mac(token[:dot])) {
		return c, errForged
	}
	payload, err := base64.RawURLEncoding.Strict().DecodeString(token[len(tokenPrefix):dot])
	if err != nil {
		return c, errMalformed
	}
	if err := json.Unmarshal(payload, &c); err != nil {
		return c, errMalformed
	}
	if c.Audience != audience {
		return c, errAudience
	}
	if s.now().UnixMilli() >= c.ExpiryMs {
		return c, errExpired
	}
	return c, nil
}

func (s *Signer) mac(signed string) []byte {
	h := hmac.New(sha256.New, s.key)
	h.Write([]byte(signed))
	return h.Sum(nil)
}
