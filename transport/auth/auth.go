// Package auth finds out who calls: it turns a bearer token into a caller.
package auth

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/harness-engine/harness-engine/engine/authz"
)

// MaxTokenBytes is the longest token that is looked at.
const MaxTokenBytes = 8 << 10

// ErrInvalid: the token is not one of this deployment, or no longer. Its text tells no more, so that nothing can be
// learnt by trying.
var ErrInvalid = errors.New("auth: token is not valid")

// Identity is what a token says.
type Identity struct {
	Caller  authz.Caller
	Expires time.Time // what was begun with the token must end then
}

// Authenticator judges bearer tokens.
type Authenticator interface {
	// Authenticate returns ErrInvalid (wrapped) for a token that it does not accept; any other error means that it
	// could not judge.
	Authenticate(ctx context.Context, token string) (Identity, error)
}

// Bearer takes the token out of an Authorization value (RFC 6750, section 2.1); false where it is not of that form.
func Bearer(authorization string) (token string, ok bool) {
	scheme, rest, found := strings.Cut(authorization, " ")
	token = strings.TrimSpace(rest)
	if !found || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > MaxTokenBytes {
		return "", false
	}
	return token, true
}
