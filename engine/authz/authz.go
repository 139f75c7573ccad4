// Package authz is the engine's side of authorization: the check port, the relations of model.fga, the caller, and
// the outbox that keeps tuples beside documents. Whatever cannot be checked is denied.
package authz

import (
	"context"
	"errors"
)

// Caller is who asks, as authentication found.
type Caller struct {
	Environment string // deployment-wide name; part of every ownership key
	Subject     string // stable user id without type, [A-Za-z0-9._@-]{1,128}
}

type callerKey struct{}

// WithCaller returns a context that carries the caller.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerFrom returns the caller, and false where the request is not authenticated.
func CallerFrom(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}

// Object is something that relations point to.
type Object struct {
	Type string // a type of model.fga
	ID   string
}

// Types of model.fga.
const (
	TypeUser     = "user"
	TypePlatform = "platform"
	TypeHarness  = "harness"
	TypeAgent    = "agent"
	TypeSession  = "session"
	TypeRun      = "run"
)

// PlatformID is the id of the one platform object.
const PlatformID = "main"

// Tuple states that the subject has the relation to the object.
type Tuple struct {
	User     string `json:"user"` // "user:alice", "user:*" or a userset "team:x#member"
	Relation string `json:"relation"`
	Object   string `json:"object"` // "agent:agt_..."
}

// Outbox keeps the tuples that an object should have beside the document that owns it. DesiredRev > AppliedRev means
// that they still have to be applied; applying is by state, not by operation, serial per object.
//
// Whoever applies puts its name among the Writers first, in the document, and takes it off with the update that says that what
// it applied is still desired. A name that stays is of an engine that may yet write something older: it is the engine's own to
// take off, or, when the engine is dead, another's, which then applies once more.
type Outbox struct {
	Desired    []Tuple  `json:"desired"`
	DesiredRev int64    `json:"desiredRev"`
	AppliedRev int64    `json:"appliedRev"`
	Writers    []string `json:"writers,omitempty"` // names of engines' lives
}

// Check asks whether the user has the relation to the object.
type Check struct {
	User       string // "user:alice"
	Relation   string
	Object     Object
	Contextual []Tuple // facts of this check only, from committed documents
	Fresh      bool    // bypass caches (HIGHER_CONSISTENCY): mutations, and after permission changes
}

// ErrUnavailable: the authorization service gave no answer. It means no.
var ErrUnavailable = errors.New("authorization unavailable")

// Checker is the check port.
type Checker interface {
	// Check returns ErrUnavailable (wrapped) when there is no answer; the result is false then.
	Check(ctx context.Context, c Check) (bool, error)
	// CheckAll answers each check, in order; an error denies all of them.
	CheckAll(ctx context.Context, cs []Check) ([]bool, error)
}

// Tuples is the write port. Apply makes the tuples of the object exactly those desired; it is idempotent.
type Tuples interface {
	Apply(ctx context.Context, object Object, desired []Tuple) error
}
