package event

import (
	"fmt"
	"math/bits"
	"slices"
)

// spanBytes is the most encoded bytes that one delivery takes from several chunks.
const spanBytes = MaxChunkBytes

// Span is consecutive events of a run that make one delivery, not yet decoded. RunID, First and Through name its content
// for ever: the log does not change.
type Span struct {
	RunID    string
	First    int64 // sequence of the first event
	Through  int64 // sequence of the last
	CaughtUp bool  // it reaches the end of the log as known when it was read
	Terminal bool  // the last event is a terminal
	// Waiting: the reader is notified when there is more, as after a poll that found nothing. It needs no poll until then.
	// False says nothing: the next poll tells.
	Waiting bool

	parts []*held
}

// Events decodes the span, once for all readers. The events are shared: read-only. The error is ErrIntegrity, wrapped.
func (s Span) Events() ([]Event, error) {
	var out []Event
	for _, k := range s.parts {
		events, err := k.decoded()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrIntegrity, err)
		}
		from := max(s.First-k.chunk.First, 0)
		to := min(s.Through, k.chunk.Last) - k.chunk.First + 1
		if events = events[from:to:to]; out == nil {
			out = events // an append copies
		} else {
			out = append(out, events...)
		}
	}
	return out, nil
}

func (s *Subscription) span(parts []*held, through, top int64) Span {
	last := parts[len(parts)-1].chunk
	return Span{
		RunID: last.RunID, First: s.cursor + 1, Through: through, CaughtUp: through >= top,
		Terminal: last.Terminal && through == last.Last, parts: parts,
	}
}

// span chooses what a reader at the cursor gets of the chunks, which are consecutive and begin with the one that holds the
// next event: at most limit events, and whole chunks but for the rest of the first. Chunks have levels: the end of one
// that crosses a multiple of 2^n is of level n or higher. The delivery ends with the first chunk of the highest level in
// reach. So whoever falls behind catches up in few deliveries, of which there are at most a handful that begin at one
// place, whoever reads; and a run that is replayed is cut the same way for everybody.
func span(chunks []*held, cursor int64, limit int) (parts []*held, through int64) {
	best, level, size := 0, -1, 0
	for i, k := range chunks {
		if k.chunk.Last-cursor > int64(limit) {
			if i == 0 {
				return k.alone, cursor + int64(limit)
			}
			break
		}
		if size += len(k.chunk.Body); i > 0 && size > spanBytes {
			break
		}
		if l := bits.Len64(uint64((k.chunk.First - 1) ^ k.chunk.Last)); l > level {
			best, level = i, l
		}
	}
	if best == 0 {
		return chunks[0].alone, chunks[0].chunk.Last
	}
	return slices.Clone(chunks[:best+1]), chunks[best].chunk.Last
}
