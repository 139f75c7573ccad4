package catalog

import (
	"context"

	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/problem"
)

// Ready returns nil when a run may start on the harness now; else HARNESS_UNKNOWN, HARNESS_DISABLED or
// HARNESS_UNAVAILABLE. There is no fallback to another harness. The detail of a probe is for admins and not in the
// error.
func (c *Catalog) Ready(_ context.Context, harnessID string) error {
	e, ok := c.Entry(harnessID)
	switch {
	case !ok:
		return problem.New(problem.HarnessUnknown, "the harness is not in this deployment's catalog").With("harness", harnessID)
	case !e.Enabled, e.Availability == harness.Disabled:
		return problem.New(problem.HarnessDisabled, "the harness %s is disabled", e.Descriptor.ID).With("harness", e.Descriptor.ID)
	case e.Availability != harness.Available:
		return problem.New(problem.HarnessUnavailable, "the harness %s is unavailable (%s)", e.Descriptor.ID, e.Availability).
			With("harness", e.Descriptor.ID).With("availability", string(e.Availability))
	}
	return nil
}
