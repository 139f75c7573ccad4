package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Codes of the public API that a caller of this package acts on; docs/api.md lists all.
const (
	CodeUnauthenticated = "UNAUTHENTICATED"
	CodeNotFound        = "NOT_FOUND"
	CodeBadUserInput    = "BAD_USER_INPUT"
)

// passing are the codes of what may be well at the next attempt.
var passing = map[string]bool{
	CodeUnauthenticated: true, // with a fresh token
	"CAPACITY":          true, "RATE_LIMITED": true, "TIMEOUT": true, "AUTHORIZATION_UNAVAILABLE": true, "INTERNAL": true,
}

// ErrCut: the connection went away, or none was to be had, without an end of the operation.
var ErrCut = errors.New("connection cut")

// Error is one error of a GraphQL response.
type Error struct {
	Message    string          `json:"message"`
	Path       []any           `json:"path"`
	Extensions ErrorExtensions `json:"extensions"`
}

// ErrorExtensions is the machine-readable part of an Error.
type ErrorExtensions struct {
	Code  string `json:"code"`
	Field string `json:"field"` // path of the input field, for instance input.message.text
}

// Errors are the errors of a GraphQL response, in order; never empty.
type Errors []Error

// Error implements error.
func (e Errors) Error() string {
	parts := make([]string, len(e))
	for i, x := range e {
		parts[i] = x.Message
		if x.Extensions.Field != "" {
			parts[i] = x.Extensions.Field + " " + parts[i]
		}
		if x.Extensions.Code != "" {
			parts[i] = x.Extensions.Code + ": " + parts[i]
		}
	}
	return strings.Join(parts, "; ")
}

// Code returns the stable code of the first GraphQL error in err's chain, or "".
func Code(err error) string {
	var e Errors
	if errors.As(err, &e) && len(e) > 0 {
		return e[0].Extensions.Code
	}
	return ""
}

// Field returns the input field that the first GraphQL error in err's chain names, or "".
func Field(err error) string {
	var e Errors
	if errors.As(err, &e) && len(e) > 0 {
		return e[0].Extensions.Field
	}
	return ""
}

// Refusal is a result of a mutation that is no success: a member of its union.
type Refusal struct {
	Type            string `json:"__typename"`
	Code            string `json:"code"`
	Message         string `json:"message"`
	ActiveRunID     string `json:"activeRunId"`
	CurrentRevision int64  `json:"currentRevision"`
	Status          string `json:"status"` // of an interrupt
}

// Error implements error.
func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s (%s)", r.Type, r.Message, r.Code) }

// Passing reports whether the same operation may go well later: the engine could not be reached, or says so.
func Passing(err error) bool {
	return errors.Is(err, ErrCut) && !errors.Is(err, context.Canceled) || passing[Code(err)]
}
