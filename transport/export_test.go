package transport

// Sockets is how many sockets are open.
func (s *Server) Sockets() int { return s.sockets.Count() }

// Streams is how many streams are open.
func (s *Server) Streams() int { return s.streams.count() }
