package run

import (
	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/problem"
)

// takes refuses attachments that the harness cannot be given.
func (c *Coordinator) takes(harnessID string, attached []file.Attachment) error {
	if len(attached) == 0 {
		return nil
	}
	d, ok := c.Harnesses.Descriptor(harnessID)
	if !ok {
		return problem.New(problem.HarnessUnknown, "the harness %s is not registered", harnessID)
	}
	for _, a := range attached {
		if !d.Capabilities[harness.Capability(file.MediaTypes[a.MediaType])].Offers() {
			return problem.New(problem.CapabilityUnsupported, "%s takes no files of type %s", d.DisplayName, a.MediaType)
		}
	}
	return nil
}
