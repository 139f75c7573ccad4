package resolvers

import (
	"context"
	"fmt"
	"strconv"

	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/graph/model"
)

const messageList = "messages"

// place is where a message stands in a session: the run's position, and the message's within the run.
type place struct{ ord, index int64 }

func (p place) after(o place) bool { return p.ord > o.ord || (p.ord == o.ord && p.index > o.index) }

// Messages folds the transcript of the current epoch: what the person said and decided, and what the agent answered in
// runs that have ended.
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
		rs, err := spend(ctx, runBytes, func() ([]run.Run, error) {
			return s.Root.Runs.SessionRuns(ctx, obj.ID, obj.Epoch, afterOrd, size+1)
		})
		if err != nil {
			return nil, fmt.Errorf("failed to list runs of session %s: %w", obj.ID, err)
		}
		for _, r := range rs {
			afterOrd = r.Ord
			ms, err := s.messagesOf(ctx, r)
			if err != nil {
				return nil, err
			}
			for i, m := range ms {
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

// messagesOf is one run's part of the transcript. It grows at its end only, so that a place in it stays. A decision
// stands at the head of the run that goes on from it; an interrupt that nobody decided, at the end of the run it ended.
func (r *Root) messagesOf(ctx context.Context, doc run.Run) ([]model.Message, error) {
	ms := make([]model.Message, 0, 2+len(doc.Output))
	say := func(id string, role model.MessageRole, text string) *model.Message {
		ms = append(ms, model.Message{ID: doc.ID + ":" + id, RunID: doc.ID, Role: role, Text: text, Attachments: []model.Attachment{}})
		return &ms[len(ms)-1]
	}
	head := say("input", model.MessageRoleUser, doc.Input.Text)
	head.Attachments = attachmentModels(doc.Input.Attachments)
	var err error
	if head.Decision, err = r.continuationOf(ctx, doc); err != nil {
		return nil, err
	}
	for _, m := range doc.Output {
		say(m.ID, model.MessageRoleAssistant, m.Text)
	}
	if i := doc.Interrupt; i != nil && i.Settled != "" && i.Settled != session.Resumed {
		tail := say("decision", model.MessageRoleUser, "")
		if tail.Decision, err = r.decisionOf(ctx, doc, nil); err != nil {
			return nil, err
		}
	}
	return ms, nil
}
