package transport

// Streams is how many streams are open.
func (s *Server) Streams() int { return s.streams.count() }
