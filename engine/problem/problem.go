// Package problem holds the errors that a client may see: a stable code, a safe message and, for bad input, the
// path of the field. Every other error is internal: edges show an incident id and log the rest.
package problem

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
)

// Code is a stable error code of the public API.
type Code string

// The codes. They are never renamed or given another meaning.
const (
	Unauthenticated        Code = "UNAUTHENTICATED"
	Forbidden              Code = "FORBIDDEN"
	NotFound               Code = "NOT_FOUND" // also for what the caller may not know of
	BadUserInput           Code = "BAD_USER_INPUT"
	HarnessUnknown         Code = "HARNESS_UNKNOWN"
	HarnessDisabled        Code = "HARNESS_DISABLED"
	HarnessUnavailable     Code = "HARNESS_UNAVAILABLE"
	CapabilityUnsupported  Code = "CAPABILITY_UNSUPPORTED"
	SessionBusy            Code = "SESSION_BUSY"
	IdempotencyConflict    Code = "IDEMPOTENCY_CONFLICT"
	InterruptConflict      Code = "INTERRUPT_CONFLICT"
	CursorExpired          Code = "CURSOR_EXPIRED"
	Capacity               Code = "CAPACITY"
	RateLimited            Code = "RATE_LIMITED"
	TooComplex             Code = "TOO_COMPLEX"
	Internal               Code = "INTERNAL"
	PersistedQueryNotFound Code = "PERSISTED_QUERY_NOT_FOUND" // send the document along
	Timeout                Code = "TIMEOUT"                   // the operation was cut off; it may have taken effect
	// AuthorizationUnavailable: nobody could say whether the caller may, so the answer is no; trying again may help.
	AuthorizationUnavailable Code = "AUTHORIZATION_UNAVAILABLE"
)

// Error is an error that may be shown to a client as it is.
type Error struct {
	Code    Code
	Message string
	Field   []string       // path of the input field, for BadUserInput
	Extra   map[string]any // further extensions, scalars only
	cause   error
}

// Error implements error. It holds the client-safe text only; the cause is for logs, by errors.Unwrap.
func (e *Error) Error() string {
	if len(e.Field) > 0 {
		return fmt.Sprintf("%s: %s", strings.Join(e.Field, "."), e.Message)
	}
	return e.Message
}

// Unwrap gives the internal cause, which must not be shown to clients.
func (e *Error) Unwrap() error { return e.cause }

// LogValue implements slog.LogValuer: logs, unlike clients, see the cause.
func (e *Error) LogValue() slog.Value { return slog.StringValue(Detail(e)) }

// Detail is err's text with the causes that the client-visible errors in its chain keep back. It is for logs only.
func Detail(err error) string {
	text := err.Error()
	for {
		e, ok := As(err)
		if !ok || e.cause == nil {
			return text
		}
		text += ": " + e.cause.Error()
		err = e.cause
	}
}

// New makes a client-visible error.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Field makes a BadUserInput error that names the field by its path, for instance "input.message.text".
func Field(path, format string, args ...any) *Error {
	return &Error{Code: BadUserInput, Message: fmt.Sprintf(format, args...), Field: strings.Split(path, ".")}
}

// NotFoundf makes a NotFound error.
func NotFoundf(noun string) *Error { return New(NotFound, "%s not found", noun) }

// Because attaches the internal cause and returns e.
func (e *Error) Because(cause error) *Error { e.cause = cause; return e }

// With adds an extension and returns e.
func (e *Error) With(key string, value any) *Error {
	if e.Extra == nil {
		e.Extra = map[string]any{}
	}
	e.Extra[key] = value
	return e
}

// As finds the client-visible error in err's chain.
func As(err error) (*Error, bool) {
	var e *Error
	ok := errors.As(err, &e)
	return e, ok
}

// Is reports whether err carries the code.
func Is(err error, code Code) bool {
	e, ok := As(err)
	return ok && e.Code == code
}
