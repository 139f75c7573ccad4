package ws

import (
	"runtime/debug"
	"time"
)

// When a crowd has left, what its sockets held is garbage, and an engine that has little to do would keep its pages for
// minutes.
const (
	crowd      = 1000            // sockets
	crowdPause = 2 * time.Second // for the others of it
)

// leaving gives memory back, once for those who leave within a moment, when half of a crowd has left. mu is held.
func (s *Server) leaving() {
	if s.collecting || s.peak-len(s.sockets) < crowd || len(s.sockets) > s.peak/2 {
		return
	}
	s.collecting = true
	time.AfterFunc(crowdPause, func() {
		s.mu.Lock()
		s.collecting = false
		s.peak = len(s.sockets)
		s.mu.Unlock()
		debug.FreeOSMemory()
	})
}
