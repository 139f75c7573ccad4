package worker

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// state sends the packed thread state of a run's end.
func (s *Server) state(w http.ResponseWriter, r *http.Request) error {
	c, err := caller(r)
	if err != nil {
		return err
	}
	f, p, leave, err := s.host.State(c, r.PathValue("id"))
	if err != nil {
		return err
	}
	defer leave()
	defer f.Close()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatInt(p.size, 10))
	h.Set(headerStateCodec, StateCodec)
	h.Set(headerStateHash, p.hash)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(restoreTime))
	w.WriteHeader(http.StatusOK)
	if _, err := io.Copy(w, f); err != nil {
		// The length was announced, so a client sees that it is cut off.
		s.log.Warn("thread state was not sent whole", "run", p.run, "error", err)
	}
	return nil
}

func (s *Server) commit(w http.ResponseWriter, r *http.Request) error {
	c, err := caller(r)
	if err != nil {
		return err
	}
	var req commitRequest
	if err := read(w, r, maxSmallBody, &req); err != nil {
		return err
	}
	if err := s.host.Commit(c, r.PathValue("id"), req.Head); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, done{})
	return nil
}

// restore takes a thread state for a worker that is not bound yet.
func (s *Server) restore(w http.ResponseWriter, r *http.Request) error {
	if _, err := caller(r); err != nil { // its form; what it may is Bind's to ask
		return err
	}
	rev, err := strconv.ParseInt(r.Header.Get(headerHeadRev), 10, 64)
	if err != nil {
		return bad(headerHeadRev, "must be a whole number")
	}
	if r.ContentLength < 0 {
		return bad("Content-Length", "is missing")
	}
	head := harness.Head{Rev: rev, Hash: r.Header.Get(headerStateHash)}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(restoreTime))
	if err := s.host.Restore(r.Context(), r.Header.Get(headerStateCodec), head, r.ContentLength, r.Body); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, done{})
	return nil
}
