package catalog

import (
	"fmt"
	"regexp"
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/harness-engine/harness-engine/engine/harness"
)

var (
	profileID  = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,63}$`)
	providerID = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,63}$`)
	levels     = []harness.Level{harness.Native, harness.Emulated, harness.Unsupported, harness.Unavailable}
	modes      = []harness.ExecutionMode{harness.ExecutionSandbox, harness.ExecutionProviderManaged, harness.ExecutionInProcess}
)

// Bounds of what a descriptor may say.
const (
	maxTextChars  = 4000
	maxListLength = 1000
)

// checkDescriptor finds what breaks the contract of a descriptor.
func checkDescriptor(d harness.Descriptor) error {
	if !harness.IDPattern.MatchString(d.ID) {
		return fmt.Errorf("the id does not match %s", harness.IDPattern)
	}
	if !slices.Contains(d.ContractVersions, harness.ContractVersion) {
		return fmt.Errorf("the adapter speaks contract versions %v, not %d", d.ContractVersions, harness.ContractVersion)
	}
	if !slices.Contains(modes, d.ExecutionMode) {
		return fmt.Errorf("the execution mode %q is unknown", d.ExecutionMode)
	}
	for name, s := range map[string]string{
		"displayName": d.DisplayName, "adapterVersion": d.AdapterVersion, "harnessVersion": d.HarnessVersion,
	} {
		if s == "" {
			return fmt.Errorf("%s is empty", name)
		}
	}
	texts := []string{
		d.DisplayName, d.Description, d.AdapterVersion, d.HarnessVersion, d.TrustBoundary,
		d.SupplyChain.Licence, d.SupplyChain.NetworkBehaviour,
	}
	texts = slices.Concat(texts, d.SupplyChain.Packages, d.SupplyChain.RuntimeArtefacts, d.SupplyChain.Credentials)
	for _, p := range d.Profiles {
		if !profileID.MatchString(p.ID) {
			return fmt.Errorf("the profile id %q does not match %s", p.ID, profileID)
		}
		texts = append(texts, p.Name, p.Description)
	}
	for _, m := range d.Models {
		if !providerID.MatchString(m.Provider) || m.ID == "" {
			return fmt.Errorf("the model %q of provider %q is not well-formed", m.ID, m.Provider)
		}
		texts = append(texts, m.ID, m.Name)
	}
	if len(texts) > maxListLength {
		return fmt.Errorf("it lists more than %d things", maxListLength)
	}
	for _, s := range texts {
		if !plain(s) {
			return fmt.Errorf("the text %.40q is longer than %d characters or not plain", s, maxTextChars)
		}
	}
	for key, level := range d.Capabilities {
		if !slices.Contains(harness.Capabilities, key) {
			return fmt.Errorf("the capability %q is not in the vocabulary", key)
		}
		if !slices.Contains(levels, level) {
			return fmt.Errorf("the level %q of %s is unknown", level, key)
		}
	}
	return nil
}

// plain: descriptors are shown by every client, so they hold no markup and no control characters.
func plain(s string) bool {
	if !utf8.ValidString(s) || utf8.RuneCountInString(s) > maxTextChars {
		return false
	}
	for _, r := range s {
		if unicode.IsControl(r) && r != '\n' || unicode.Is(unicode.Cf, r) {
			return false
		}
	}
	return !markup.MatchString(s)
}

var markup = regexp.MustCompile(`(?i)<\s*/?\s*[a-z!]|javascript:`)
