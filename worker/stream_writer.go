package worker

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// streamBatch is how much of the journal is written at once.
const streamBatch = 256 << 10

// streamWriter writes a reading as lines.
type streamWriter struct {
	w    http.ResponseWriter
	ctrl *http.ResponseController
	buf  []byte
}

func newStreamWriter(w http.ResponseWriter) *streamWriter {
	patient(w)
	return &streamWriter{w: w, ctrl: http.NewResponseController(w)}
}

// run writes until the run has ended, the reader is fenced or forgotten, or nobody listens.
func (s *streamWriter) run(ctx context.Context, r reader, after int64, stopped <-chan struct{}) {
	beat := time.NewTicker(Heartbeat)
	defer beat.Stop()
	if !s.send() { // the client waits for the header
		return
	}
	for {
		got, err := r.journal.read(after, streamBatch)
		if err != nil {
			s.control(`{"closed":"` + string(CodeGone) + `"}`)
			return
		}
		select {
		case <-r.fenced: // before anything is written: a stale engine gets nothing more
			s.control(`{"closed":"` + string(CodeStaleLease) + `"}`)
			return
		default:
		}
		for _, e := range got.entries {
			s.buf = append(s.buf, `{"seq":`...)
			s.buf = strconv.AppendInt(s.buf, e.seq, 10)
			s.buf = append(append(s.buf, e.body...), '\n')
			after = e.seq
		}
		if got.ended {
			s.control(`{"end":true}`)
			return
		}
		if len(got.entries) > 0 {
			if !s.send() {
				return
			}
			continue
		}
		select {
		case <-got.change:
		case <-beat.C:
			if !s.control(`{"heartbeat":true}`) {
				return
			}
		case <-r.fenced:
		case <-stopped:
			s.control(`{"closed":"` + string(CodeClosing) + `"}`)
			return
		case <-ctx.Done():
			return
		}
	}
}

func (s *streamWriter) control(line string) bool {
	s.buf = append(append(s.buf, line...), '\n')
	return s.send()
}

// send writes what is buffered and reports whether anybody takes it.
func (s *streamWriter) send() bool {
	_ = s.ctrl.SetWriteDeadline(time.Now().Add(writeTime))
	if _, err := s.w.Write(s.buf); err != nil {
		return false
	}
	s.buf = s.buf[:0]
	return s.ctrl.Flush() == nil
}
