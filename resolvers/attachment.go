package resolvers

import (
	"context"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/graph/model"
)

// attached finds what a message refers to.
func (r *Root) attached(ctx context.Context, who authz.Caller, path string, ids []string) ([]file.Attachment, error) {
	switch {
	case len(ids) == 0:
		return nil, nil
	case r.Files == nil:
		return nil, problem.Field(path, "must be empty: this deployment takes no attachments")
	}
	return r.Files.Check(ctx, who, path, ids)
}

func attachmentModels(as []file.Attachment) []model.Attachment {
	ms := make([]model.Attachment, len(as))
	for i, a := range as {
		ms[i] = model.Attachment{ID: a.ID, Name: a.Name, MediaType: a.MediaType, Size: a.Size, Sha256: a.Hash}
	}
	return ms
}
