package transport

// Sockets is how many sockets are open.
func (s *Server) Sockets() int { return s.sockets.Count() }

// Streams is how many streams are open.
func (s *Server) Streams() int { return s.streams.count() }

// Held is how many bytes of requests and messages are held.
func (s *Server) Held() int64 {
	n, _ := s.held.Held()
	return n
}

// Requests is how many HTTP requests are in work.
func (s *Server) Requests() int64 {
	n, _ := s.requests.Held()
	return n
}

// Connections is how many are open that are no WebSockets.
func (s *Server) Connections() int { return s.conns.count() }
