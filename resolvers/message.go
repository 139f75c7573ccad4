package resolvers

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/harness-engine/harness-engine/engine/problem"
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
func (s sessions) Messages(ctx context.Context, obj *model.Session, first int64, after *string, last *int64, before *string) (*model.MessageConnection, error) {
	if last != nil {
		if after != nil {
			return nil, problem.Field("after", "goes with first, not with last")
		}
		return s.messagesBefore(ctx, obj, *last, before)
	}
	if before != nil {
		return nil, problem.Field("before", "goes with last")
	}
	size, err := checkFirst(first, maxFirst)
	if err != nil {
		return nil, err
	}
	from := place{ord: 0, index: -1}
	if at, err := decodePlace("after", after); err != nil {
		return nil, err
	} else if at != nil {
		from = *at
	}
	// The run of the cursor itself is read again: the rest of its messages follow.
	afterOrd := max(from.ord-1, 0)
	edges, more, err := s.fold(ctx, obj, size, func(limit int) ([]run.Run, error) {
		return s.Root.Runs.SessionRuns(ctx, obj.ID, obj.Epoch, afterOrd, limit)
	}, func(r run.Run, ms []model.MessageEdge, at func(int) place) []model.MessageEdge {
		afterOrd = r.Ord
		n := 0
		for n < len(ms) && !at(n).after(from) {
			n++
		}
		return ms[n:]
	})
	if err != nil {
		return nil, err
	}
	return messageConnection(edges, more, after != nil), nil
}

// messagesBefore is the page that ends ahead of a cursor, or at the end.
func (s sessions) messagesBefore(ctx context.Context, obj *model.Session, last int64, before *string) (*model.MessageConnection, error) {
	size, err := checkSize("last", last, maxFirst)
	if err != nil {
		return nil, err
	}
	to := place{ord: math.MaxInt64}
	if at, err := decodePlace("before", before); err != nil {
		return nil, err
	} else if at != nil {
		to = *at
	}
	beforeOrd := to.ord // and the run of the cursor itself: the head of its messages precedes
	if beforeOrd < math.MaxInt64 {
		beforeOrd++
	}
	edges, more, err := s.fold(ctx, obj, size, func(limit int) ([]run.Run, error) {
		return s.Root.Runs.SessionRunsBefore(ctx, obj.ID, obj.Epoch, beforeOrd, limit)
	}, func(r run.Run, ms []model.MessageEdge, at func(int) place) []model.MessageEdge {
		beforeOrd = r.Ord
		n := len(ms)
		for n > 0 && !to.after(at(n-1)) {
			n--
		}
		ms = ms[:n]
		slices.Reverse(ms)
		return ms
	})
	if err != nil {
		return nil, err
	}
	slices.Reverse(edges)
	return messageConnection(edges, before != nil, more), nil
}

// fold gathers the messages of runs until a page of them is full, and says whether there are more. read gives the next runs,
// pick those of a run's messages that belong to the list, in its direction.
func (s sessions) fold(ctx context.Context, obj *model.Session, size int, read func(limit int) ([]run.Run, error),
	pick func(r run.Run, ms []model.MessageEdge, at func(int) place) []model.MessageEdge,
) (edges []model.MessageEdge, more bool, err error) {
	edges = []model.MessageEdge{}
	for {
		rs, err := spend(ctx, runBytes, func() ([]run.Run, error) { return read(size + 1) })
		if err != nil {
			return nil, false, fmt.Errorf("failed to list runs of session %s: %w", obj.ID, err)
		}
		for _, r := range rs {
			said, err := s.messagesOf(ctx, r)
			if err != nil {
				return nil, false, err
			}
			at := func(i int) place { return place{r.Ord, int64(i)} }
			ms := make([]model.MessageEdge, len(said))
			for i, m := range said {
				ms[i] = model.MessageEdge{Cursor: at(i).cursor(), Node: m}
			}
			for _, e := range pick(r, ms, at) {
				if len(edges) == size {
					return edges, true, nil
				}
				edges = append(edges, e)
			}
		}
		if len(rs) <= size {
			return edges, false, nil
		}
	}
}

func messageConnection(edges []model.MessageEdge, hasNext, hasPrevious bool) *model.MessageConnection {
	return &model.MessageConnection{
		Edges: edges, PageInfo: connectionInfo(edges, func(e model.MessageEdge) string { return e.Cursor }, hasNext, hasPrevious),
	}
}

func (p place) cursor() string {
	return encodeCursor(messageList, strconv.FormatInt(p.ord, 10), strconv.FormatInt(p.index, 10))
}

// decodePlace reads the cursor that an argument holds, nil for none.
func decodePlace(argument string, cursor *string) (*place, error) {
	parts, err := decodeCursorOf(argument, messageList, cursor, 2)
	if err != nil || parts == nil {
		return nil, err
	}
	var p place
	for i, n := range []*int64{&p.ord, &p.index} {
		if *n, err = strconv.ParseInt(parts[i], 10, 64); err != nil || *n < 0 {
			return nil, problem.Field(argument, "is not a cursor of this list")
		}
	}
	return &p, nil
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
