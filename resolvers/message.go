package resolvers

import (
	"context"
	"fmt"
	"strconv"

	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/graph/model"
)

const messageList = "messages"

// place is where a message stands in a session: the run's position, and the message's within the run.
type place struct{ ord, index int64 }

func (p place) after(o place) bool { return p.ord > o.ord || (p.ord == o.ord && p.index > o.index) }

// Messages folds the transcript of the current epoch: what the person said, and what the agent answered in runs that
// have ended.
func (s sessions) Messages(ctx context.Context, obj *model.Session, first int64, after *string) (*model.MessageConnection, error) {
	size, err := checkFirst(first, maxFirst)
	if err != nil {
		return nil, err
	}
	parts, err := decodeCursor(messageList, after, 2)
	if err != nil {
		return nil, err
	}
	from := place{ord: 0, index: -1}
	if parts != nil {
		if from.ord, err = decodeNumber(parts[0]); err != nil {
			return nil, err
		}
		if from.index, err = decodeNumber(parts[1]); err != nil {
			return nil, err
		}
	}
	conn := &model.MessageConnection{Edges: []model.MessageEdge{}}
	more := false
	// The run of the cursor itself is read again: the rest of its messages follow.
	for afterOrd := max(from.ord-1, 0); !more; {
		rs, err := s.Root.Runs.SessionRuns(ctx, obj.ID, obj.Epoch, afterOrd, size+1)
		if err != nil {
			return nil, fmt.Errorf("failed to list runs of session %s: %w", obj.ID, err)
		}
		for _, r := range rs {
			afterOrd = r.Ord
			for i, m := range messagesOf(r) {
				at := place{r.Ord, int64(i)}
				if !at.after(from) {
					continue
				}
				if more = len(conn.Edges) == size; more {
					break
				}
				conn.Edges = append(conn.Edges, model.MessageEdge{Cursor: encodeCursor(messageList, strconv.FormatInt(at.ord, 10), strconv.FormatInt(at.index, 10)), Node: m})
			}
			if more {
				break
			}
		}
		if len(rs) <= size {
			break
		}
	}
	conn.PageInfo = connectionInfo(conn.Edges, func(e model.MessageEdge) string { return e.Cursor }, more, after != nil)
	return conn, nil
}

// messagesOf is one run's part of the transcript.
func messagesOf(r run.Run) []model.Message {
	ms := make([]model.Message, 0, 1+len(r.Output))
	ms = append(ms, model.Message{ID: r.ID + ":input", RunID: r.ID, Role: model.MessageRoleUser, Text: r.Input.Text})
	for _, m := range r.Output {
		ms = append(ms, model.Message{ID: r.ID + ":" + m.ID, RunID: r.ID, Role: model.MessageRoleAssistant, Text: m.Text})
	}
	return ms
}
