package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/gowebpki/jcs"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// standing is availability as far as it can change a validation. Health comes and goes and capacity is left out, so
// that neither makes every draft stale: UNHEALTHY stands as AVAILABLE. What is missing or misconfigured stays so until
// somebody acts, makes a draft invalid, and is therefore part of the revision.
func standing(a harness.Availability) harness.Availability {
	if a == harness.Unhealthy {
		return harness.Available
	}
	return a
}

// entryRevision is the digest of everything about a harness that can change a validation.
func entryRevision(e Entry, p Policy) string {
	var usable []string
	if p.Providers != nil {
		usable = append([]string{}, slices.Sorted(slices.Values(p.Providers))...)
	}
	return digest(struct {
		Descriptor    harness.Descriptor    `json:"descriptor"`
		Standing      harness.Availability  `json:"standing"`
		Certification harness.Certification `json:"certification"`
		Enabled       bool                  `json:"enabled"`
		Providers     []string              `json:"providers"`
	}{e.Descriptor, standing(e.Availability), e.Certification, e.Enabled, usable})
}

func overallRevision(entries map[string]Entry) string {
	revisions := make(map[string]string, len(entries))
	for id, e := range entries {
		revisions[id] = e.Revision
	}
	return digest(revisions)
}

// digest is the hex SHA-256 of the canonical JSON of v. Registration has made sure that descriptors can be encoded, and
// nothing else that could fail is put in.
func digest(v any) string {
	raw, err := canonical(v)
	if err != nil {
		panic("catalog: what is registered cannot be encoded: " + err.Error())
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

func canonical(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return jcs.Transform(raw)
}

// Revision is the digest over all harnesses.
func (c *Catalog) Revision() string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.overall
}

// HarnessRevision is the revision of one harness, the one that reports and versions bear. A harness that is not
// registered has one too, which changes when it is. An empty id is the default harness.
func (c *Catalog) HarnessRevision(id string) string {
	if e, ok := c.Entry(id); ok {
		return e.Revision
	}
	return digest(map[string]string{"unknown": id})
}
