package transport

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Check is one thing that the engine cannot work without.
type Check struct {
	Name  string
	Check func(ctx context.Context) error
}

// health answers that the process is up.
func health(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, struct {
		Status string `json:"status"`
	}{"ok"})
}

// checkResult is what the outside may know of a check: why it failed is in the log.
type checkResult struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
}

// ready answers whether the engine can work. Answers are kept for a moment: nobody has to be known to ask.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	results := s.checks.ask(r.Context())
	status, code := "ready", http.StatusOK
	for _, c := range results {
		if !c.OK {
			status, code = "not ready", http.StatusServiceUnavailable
		}
	}
	if s.draining() {
		status, code = "draining", http.StatusServiceUnavailable
	}
	writeJSON(w, code, struct {
		Status string        `json:"status"`
		Checks []checkResult `json:"checks"`
	}{status, results})
}

// readiness asks the checks, one round at a time.
type readiness struct {
	checks   []Check
	timeout  time.Duration
	cacheFor time.Duration
	logger   *slog.Logger

	mu      sync.Mutex
	results []checkResult
	asked   time.Time
}

func newReadiness(checks []Check, l Limits, logger *slog.Logger) *readiness {
	return &readiness{checks: checks, timeout: l.ReadinessTimeout, cacheFor: l.ReadinessCacheFor, logger: logger}
}

func (r *readiness) ask(ctx context.Context) []checkResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.results != nil && time.Since(r.asked) < r.cacheFor {
		return r.results
	}
	// Whoever asked first may leave; the answer is for all.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.timeout)
	defer cancel()
	type answer struct {
		at  int
		err error
	}
	answers := make(chan answer, len(r.checks))
	for i, c := range r.checks {
		go func() { answers <- answer{i, c.Check(ctx)} }()
	}
	results := make([]checkResult, len(r.checks))
	for i, c := range r.checks {
		results[i].Name = c.Name
	}
	for range r.checks {
		select {
		case a := <-answers:
			results[a.at].OK = a.err == nil
			if a.err != nil {
				r.logger.WarnContext(ctx, "not ready", "check", r.checks[a.at].Name, "error", a.err)
			}
			continue
		case <-ctx.Done():
			r.logger.WarnContext(ctx, "not ready: checks gave no answer in time", "timeout", r.timeout)
		}
		break
	}
	r.results, r.asked = results, time.Now()
	return results
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
