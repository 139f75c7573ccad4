package resolvers

import (
	"context"
	"fmt"
	"strconv"

	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/graph/model"
)

const sessionRunList = "sessionRuns"

// Runs pages the runs of the session's epoch in their order.
func (s sessions) Runs(ctx context.Context, obj *model.Session, first int64, after *string) (*model.RunConnection, error) {
	size, err := checkFirst(first, maxFirst)
	if err != nil {
		return nil, err
	}
	parts, err := decodeCursor(sessionRunList, after, 1)
	if err != nil {
		return nil, err
	}
	var afterOrd int64
	if parts != nil {
		if afterOrd, err = decodeNumber(parts[0]); err != nil {
			return nil, err
		}
	}
	page, err := spend(ctx, runBytes, func() ([]run.Run, error) {
		return s.Root.Runs.SessionRuns(ctx, obj.ID, obj.Epoch, afterOrd, size+1)
	})
	if err != nil {
		return nil, fmt.Errorf("failed to list runs of session %s: %w", obj.ID, err)
	}
	more := len(page) > size
	if more {
		page = page[:size]
	}
	cursor := func(r run.Run) string { return encodeCursor(sessionRunList, strconv.FormatInt(r.Ord, 10)) }
	conn := s.runConnection(ctx, page, cursor, more, after != nil)
	if more {
		conn.PageInfo.EndCursor = optional(cursor(page[size-1]))
	}
	return conn, nil
}
