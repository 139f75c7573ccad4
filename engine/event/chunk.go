package event

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"maps"
	"slices"
)

// ChunkHeader is what a writer gives to a chunk beside its events. The meaning is as in Chunk.
type ChunkHeader struct {
	RunID     string
	SessionID string
	First     int64
	Gen       int64
	Writer    string
	Cursors   map[string]Cursor
	Facts     map[string]string
}

// ErrChunkSize: the events do not fit into one chunk.
var ErrChunkSize = fmt.Errorf("chunk above %d events or %d bytes", MaxChunkEvents, MaxChunkBytes)

// ErrChunkHash: the chunk's content is not what was sealed.
var ErrChunkHash = errors.New("chunk does not match its hash")

// NewChunk encodes events, at least one, and seals them. It fails with ErrChunkSize above MaxChunkEvents or
// MaxChunkBytes, and where an event that is not the last is a terminal.
func NewChunk(h ChunkHeader, events []Event) (Chunk, error) {
	if len(events) == 0 {
		return Chunk{}, errors.New("failed to make chunk: no events")
	}
	if len(events) > MaxChunkEvents {
		return Chunk{}, fmt.Errorf("failed to make chunk: %w", ErrChunkSize)
	}
	body := make([]byte, 0, 256*len(events))
	body = append(body, '[')
	for i, e := range events {
		if i > 0 {
			body = append(body, ',')
		}
		var err error
		if body, err = appendEvent(body, e); err != nil {
			return Chunk{}, err
		}
		if e.Type().Terminal() && i < len(events)-1 {
			return Chunk{}, errors.New("failed to make chunk: events after a terminal")
		}
		if len(body) >= MaxChunkBytes {
			return Chunk{}, fmt.Errorf("failed to make chunk: %w", ErrChunkSize)
		}
	}
	body = append(body, ']')
	c := Chunk{
		RunID: h.RunID, SessionID: h.SessionID, First: h.First, Last: h.First + int64(len(events)) - 1,
		Gen: h.Gen, Writer: h.Writer, Cursors: maps.Clone(h.Cursors), Facts: maps.Clone(h.Facts),
		Body: body, Terminal: events[len(events)-1].Type().Terminal(),
	}
	c.Seal()
	return c, nil
}

// Len is the number of events.
func (c Chunk) Len() int { return int(c.Last - c.First + 1) }

// Events decodes the body and fills in run, session and sequence. The events share no memory with the chunk.
func (c Chunk) Events() ([]Event, error) {
	events, err := c.decode()
	if err != nil {
		return nil, fmt.Errorf("failed to decode chunk %s/%d: %w", c.RunID, c.First, err)
	}
	return events, nil
}

func (c Chunk) decode() ([]Event, error) {
	if c.First < 1 || c.Last < c.First || c.Len() > MaxChunkEvents {
		return nil, errors.New("impossible range")
	}
	events := make([]Event, 0, c.Len())
	s := scanner{src: c.Body}
	if err := s.expect('['); err != nil {
		return nil, err
	}
	for {
		s.space()
		e, n, err := decodePrefix(c.Body[s.pos:])
		if err != nil {
			return nil, err
		}
		s.pos += n
		if len(events) == c.Len() {
			return nil, errors.New("more events than the range")
		}
		e.RunID, e.SessionID, e.Sequence = c.RunID, c.SessionID, c.First+int64(len(events))
		events = append(events, e)
		more, err := s.more(']')
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
	}
	if err := s.end(); err != nil {
		return nil, err
	}
	if len(events) != c.Len() {
		return nil, errors.New("fewer events than the range")
	}
	if c.Terminal != events[len(events)-1].Type().Terminal() {
		return nil, errors.New("terminal mark differs from the last event")
	}
	return events, nil
}

// Seal sets SHA256 over every other field.
func (c *Chunk) Seal() { c.SHA256 = c.sum() }

// Verify returns ErrChunkHash (wrapped) when the chunk is not as it was sealed.
func (c Chunk) Verify() error {
	if c.sum() != c.SHA256 {
		return fmt.Errorf("failed to verify chunk %s/%d: %w", c.RunID, c.First, ErrChunkHash)
	}
	return nil
}

// sealVersion begins what is hashed, so that another layout can never give the same hash.
const sealVersion = "harness-engine chunk v1"

// sum hashes every field, each with its length before it and maps in the order of their keys: no two different
// chunks are written alike.
func (c Chunk) sum() [32]byte {
	w := sealer{h: sha256.New()}
	w.text(sealVersion)
	w.text(c.RunID)
	w.text(c.SessionID)
	w.number(c.First)
	w.number(c.Last)
	w.number(c.Gen)
	w.text(c.Writer)
	w.number(int64(len(c.Cursors)))
	for _, k := range slices.Sorted(maps.Keys(c.Cursors)) {
		w.text(k)
		w.text(c.Cursors[k].Incarnation)
		w.number(c.Cursors[k].Seq)
	}
	w.number(int64(len(c.Facts)))
	for _, k := range slices.Sorted(maps.Keys(c.Facts)) {
		w.text(k)
		w.text(c.Facts[k])
	}
	w.bytes(c.Body)
	terminal := int64(0)
	if c.Terminal {
		terminal = 1
	}
	w.number(terminal)
	var out [32]byte
	w.h.Sum(out[:0])
	return out
}

type sealer struct {
	h   hash.Hash
	buf [8]byte
}

func (w *sealer) number(n int64) {
	binary.BigEndian.PutUint64(w.buf[:], uint64(n))
	w.h.Write(w.buf[:])
}

func (w *sealer) bytes(b []byte) {
	w.number(int64(len(b)))
	w.h.Write(b)
}

func (w *sealer) text(s string) { w.bytes([]byte(s)) }
