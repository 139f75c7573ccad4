package broker

import (
	"errors"
	"net/http"
	"strings"
)

// refusal is an answer of the broker itself, in the words of the providers' APIs.
type refusal struct {
	status  int
	kind    string
	code    string
	message string
}

func unauthorized(code, message string) *refusal {
	return &refusal{http.StatusUnauthorized, "authentication_error", code, message}
}

func forbidden(code, message string) *refusal {
	return &refusal{http.StatusForbidden, "permission_error", code, message}
}

// capabilityRefusals tells a worker's log what is wrong with its capability; it says nothing about others.
var capabilityRefusals = map[error]*refusal{
	errMalformed: unauthorized("capability_malformed", "the capability is malformed"),
	errForged:    unauthorized("capability_forged", "the capability is not valid here"),
	errAudience:  unauthorized("capability_audience", "the capability is for something else"),
	errExpired:   unauthorized("capability_expired", "the capability has expired"),
}

// authorize judges the capability of a call: its signature and time, and then the committed binding, because a worker
// that was replaced, or whose run is over, still holds a token that looks good.
func (b *Broker) authorize(r *http.Request) (claims, *refusal) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return claims{}, unauthorized("capability_missing", "the call bears no capability")
	}
	c, err := b.opts.Signer.verify(token)
	if err != nil {
		return claims{}, capabilityRefusals[err]
	}
	epoch, sandboxGen, activeRun, err := b.opts.Bindings.Committed(r.Context(), c.SessionID)
	switch {
	case errors.Is(err, ErrUnknownSession):
		return c, forbidden("session_unknown", "the conversation does not exist")
	case err != nil:
		b.opts.Logger.WarnContext(r.Context(), "failed to read binding", "session", c.SessionID, "error", err)
		return c, &refusal{http.StatusServiceUnavailable, "api_error", "binding_unavailable", "the binding cannot be read now"}
	case c.Epoch != epoch:
		return c, forbidden("stale_epoch", "the conversation was cleared")
	case c.SandboxGen != sandboxGen:
		return c, forbidden("stale_worker", "another worker serves the conversation")
	case c.RunID != activeRun:
		return c, forbidden("stale_run", "the run is not active")
	}
	return c, nil
}
