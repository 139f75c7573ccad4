// Package fakemodel is a model endpoint that needs no key and no network: Anthropic Messages and OpenAI Chat
// Completions, streaming and not, whose answers are scripted by markers in the user's text. Tests use it as a
// library, the keyless demo as a program. docs/fake-model.md describes the markers.
package fakemodel

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Bounds of the endpoint.
const (
	maxBodyBytes     = 64 << 20 // a request body
	maxKeptBodyBytes = 1 << 20  // of a body that Requests returns
	maxKeptRequests  = 1000     // the newest are kept
	maxKeptAttempts  = 1000     // then all are forgotten
)

// Options configure a Server. The zero value is usable.
type Options struct {
	// APIKey, where not empty, must come with each request, as x-api-key or as a bearer token; else 401.
	APIKey string
	// DeltaDelay is the pause before each delta of text, so that a stream looks like one. 0 is none.
	DeltaDelay time.Duration
	// Logger gets one line a request, without content. Nil discards.
	Logger *slog.Logger
}

// Server is the endpoint. Make one with New.
type Server struct {
	opts Options
	mux  *http.ServeMux
	life string // that no other Server has: a conversation must not meet the id of a call twice

	mu       sync.Mutex
	seq      int64
	kept     []Request
	attempts map[[32]byte]int // replies that may be cut or hang, by what they answer
}

// Request is what the endpoint saw of one request.
type Request struct {
	Seq         int64 // from 1, in order of arrival
	Method      string
	Path        string
	Header      http.Header
	Body        []byte // the first MiB
	Model       string
	Stream      bool
	System      string   // system prompt, all blocks
	Users       []string // every user text with what is attached, oldest first
	Attachments []string // what is attached to any message, oldest first: media type, bytes, beginning of the SHA-256
	ToolResults []string // tool results after the last user text
	Tools       []string // names of the tools on offer
}

// New returns the endpoint. It is an http.Handler that serves
//
//	POST /v1/messages               Anthropic Messages
//	POST /v1/messages/count_tokens
//	POST /v1/chat/completions       OpenAI Chat Completions
//	GET  /v1/models                 in the form of whichever SDK asks
func New(o Options) *Server {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{opts: o, mux: http.NewServeMux(), life: strings.ToLower(rand.Text()[:8])}
	s.mux.HandleFunc("POST /v1/messages", s.anthropicMessages)
	s.mux.HandleFunc("POST /v1/messages/count_tokens", s.anthropicCountTokens)
	s.mux.HandleFunc("POST /v1/chat/completions", s.openAIChat)
	s.mux.HandleFunc("GET /v1/models", s.models)
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.opts.APIKey != "" && !carriesKey(r, s.opts.APIKey) {
		s.record(r, nil, conversation{})
		fail(w, r, http.StatusUnauthorized, "invalid x-api-key")
		return
	}
	s.mux.ServeHTTP(w, r)
}

// Requests returns what has been seen, oldest first; at most the newest 1,000.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.kept...)
}

// Reset forgets what has been seen.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = nil
}

func (s *Server) record(r *http.Request, body []byte, c conversation) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	if len(s.kept) == maxKeptRequests {
		s.kept = append(s.kept[:0], s.kept[1:]...)
	}
	s.kept = append(s.kept, Request{
		Seq: s.seq, Method: r.Method, Path: r.URL.Path, Header: r.Header.Clone(),
		Body:  append([]byte(nil), body[:min(len(body), maxKeptBodyBytes)]...),
		Model: c.model, Stream: c.stream, System: c.system, Users: c.users, Attachments: c.files, ToolResults: c.results, Tools: c.tools,
	})
	s.opts.Logger.Info("request", "seq", s.seq, "path", r.URL.Path, "model", c.model, "stream", c.stream,
		"users", len(c.users), "tools", len(c.tools))
	return s.seq
}

// attempt counts the replies to the same, as they begin, from 1.
func (s *Server) attempt(c conversation) int {
	key := sha256.Sum256(fmt.Appendf(nil, "%q %d", c.users, c.round))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attempts == nil || len(s.attempts) >= maxKeptAttempts {
		s.attempts = map[[32]byte]int{}
	}
	s.attempts[key]++
	return s.attempts[key]
}

// idOf is what the ids of an answer are made of.
func (s *Server) idOf(seq int64) string { return fmt.Sprintf("%s%d", s.life, seq) }

// read takes the body and decodes it into v, answering the client itself when that fails.
func read(w http.ResponseWriter, r *http.Request, v any) ([]byte, bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err != nil {
		fail(w, r, http.StatusRequestEntityTooLarge, "request body too large or cut")
		return nil, false
	}
	if err := json.Unmarshal(body, v); err != nil {
		fail(w, r, http.StatusBadRequest, "request body is not the expected JSON: "+err.Error())
		return nil, false
	}
	return body, true
}

// errorTypes are Anthropic's names of the statuses; OpenAI's clients go by the status alone.
var errorTypes = map[int]string{
	400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
	413: "request_too_large", 429: "rate_limit_error", 504: "timeout_error", 529: "overloaded_error",
}

func errorType(status int) string {
	if t, ok := errorTypes[status]; ok {
		return t
	}
	if status < 500 {
		return "invalid_request_error"
	}
	return "api_error"
}

// fail answers with an error in the form of the API that was asked.
func fail(w http.ResponseWriter, r *http.Request, status int, message string) {
	if strings.HasPrefix(r.URL.Path, "/v1/messages") {
		writeJSON(w, status, map[string]any{
			"type": "error", "error": map[string]any{"type": errorType(status), "message": message},
		})
		return
	}
	writeJSON(w, status, map[string]any{"error": map[string]any{
		"message": message, "type": errorType(status), "param": nil, "code": fmt.Sprint(status),
	}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone: nobody to tell
}

func carriesKey(r *http.Request, key string) bool {
	bearer, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return r.Header.Get("X-Api-Key") == key || bearer == key
}

// Models that the endpoint claims to have; it accepts any name.
var modelNames = []string{"fake-model", "fake-model-mini"}

func (s *Server) models(w http.ResponseWriter, r *http.Request) {
	s.record(r, nil, conversation{})
	var data []map[string]any
	for _, m := range modelNames {
		if r.Header.Get("Anthropic-Version") != "" {
			data = append(data, map[string]any{
				"type": "model", "id": m, "display_name": m, "created_at": "2026-01-01T00:00:00Z",
			})
		} else {
			data = append(data, map[string]any{"id": m, "object": "model", "created": 1767225600, "owned_by": "fake"})
		}
	}
	if r.Header.Get("Anthropic-Version") != "" {
		writeJSON(w, http.StatusOK, map[string]any{
			"data": data, "has_more": false, "first_id": modelNames[0], "last_id": modelNames[len(modelNames)-1],
		})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": data})
}
