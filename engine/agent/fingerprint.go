package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/gowebpki/jcs"
)

// Fingerprint is the hex SHA-256 of the canonical JSON (RFC 8785) of a normalised blueprint: the same for the same
// content, whatever the order of keys and the spelling of numbers and escapes.
func Fingerprint(b Blueprint) (string, error) {
	raw, err := json.Marshal(b)
	if err != nil {
		return "", fmt.Errorf("failed to encode blueprint: %w", err)
	}
	canonical, err := jcs.Transform(raw)
	if err != nil {
		return "", fmt.Errorf("failed to canonicalise blueprint: %w", err)
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:]), nil
}
