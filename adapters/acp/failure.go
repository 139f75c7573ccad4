package acp

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"unicode/utf8"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/worker"
)

// ErrorClass says what an error of the agent means.
type ErrorClass struct {
	Code int // JSON-RPC code; 0 is any
	// Match reads the message of the error, with what the harness said in front of it (Profile.Synthetic), and its data.
	// Nil is always.
	Match func(message string, data json.RawMessage) bool
	As    worker.Failure // shown; its Cause is set to the error
	Stop  string         // stop reason; the turn did not fail, but the agent says so for want of another way
}

func (c ErrorClass) matches(e *RPCError) bool {
	return (c.Code == 0 || c.Code == e.Code) && (c.Match == nil || c.Match(e.Message+"\n"+e.said, e.Data))
}

// protocolErrors are the classes of the protocol's own codes.
var protocolErrors = []ErrorClass{
	{Code: codeAuthRequired, As: worker.Failure{
		Category: event.CategoryAuthentication, Code: "harness_login_required",
		Message: "The harness has no valid login.",
	}},
	{Code: codeNotFound, As: worker.Failure{
		Category: event.CategoryPersistence, Code: codeSessionLost, Message: messageSessionLost,
	}},
	{Code: codeInvalidRequest, As: refused}, {Code: codeMethodNotFound, As: refused}, {Code: codeInvalidParams, As: refused},
	{As: worker.Failure{
		Category: event.CategoryInternal, Code: "harness_failed", Message: "The harness failed.",
	}},
}

var refused = worker.Failure{
	Category: event.CategoryProtocol, Code: "harness_refused_request",
	Message: "The harness refused a request of the driver.",
}

const (
	codeSessionLost    = "native_session_lost"
	messageSessionLost = "The harness no longer has this conversation. Clear the session to start a new one."
)

// stop gives the stop reason that an error of the agent stands for, or nothing.
func (p Profile) stop(err error) string {
	var rpc *RPCError
	if !errors.As(err, &rpc) {
		return ""
	}
	for _, c := range p.Errors {
		if c.matches(rpc) {
			return c.Stop
		}
	}
	return ""
}

// classify turns whatever ended a call of the agent into a failure that may be shown.
func (p Profile) classify(err error) *worker.Failure {
	var known *worker.Failure
	if errors.As(err, &known) {
		return known
	}
	var rpc *RPCError
	if errors.As(err, &rpc) {
		return p.classifyRPC(rpc)
	}
	for _, row := range connectionErrors {
		if errors.Is(err, row.err) {
			f := row.as
			f.Cause = err
			return &f
		}
	}
	return &worker.Failure{
		Category: event.CategoryInternal, Code: "harness_failed", Message: "The harness failed.", Cause: err,
	}
}

var connectionErrors = []struct {
	err error
	as  worker.Failure
}{
	{errViolation, worker.Failure{
		Category: event.CategoryProtocol, Code: "harness_protocol_violation",
		Message: "The harness sent what its protocol does not allow.",
	}},
	{errClosed, worker.Failure{
		Category: event.CategoryUnavailable, Code: "harness_exited", Retryable: true,
		Message: "The harness process ended.",
	}},
	{context.DeadlineExceeded, worker.Failure{
		Category: event.CategoryTimeout, Code: "harness_timeout", Retryable: true,
		Message: "The harness did not answer in time.",
	}},
	{errTooLong, worker.Failure{
		Category: event.CategoryConfiguration, Code: "request_too_large",
		Message: "The request is too large for the harness.",
	}},
}

func (p Profile) classifyRPC(e *RPCError) *worker.Failure {
	if p.lost(e.Data) {
		return worker.InterruptLost(e)
	}
	if f, ok := p.told(e.Message, e.Data); ok {
		f.Cause = e
		return &f
	}
	for _, table := range [][]ErrorClass{p.Errors, protocolErrors} {
		for _, c := range table {
			if c.matches(e) {
				f := c.As
				f.Cause = e
				return &f
			}
		}
	}
	return nil // not reached: the last row of protocolErrors matches all
}

var (
	stableCode = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)
	categories = map[event.Category]bool{
		event.CategoryConfiguration: true, event.CategoryAuthentication: true, event.CategoryAuthorization: true,
		event.CategoryCapacity: true, event.CategoryThrottled: true, event.CategoryUnavailable: true,
		event.CategoryTimeout: true, event.CategoryProtocol: true, event.CategoryPersistence: true,
		event.CategoryCancelled: true, event.CategoryInternal: true,
	}
)

// maxRetryAfterMs bounds how long an agent may ask to wait: an hour.
const maxRetryAfterMs = 3_600_000

// errorData is what an agent of ours says of an error.
type errorData struct {
	Category     event.Category `json:"category"`
	Code         string         `json:"code"`
	Retryable    bool           `json:"retryable"`
	RetryAfterMs int64          `json:"retryAfterMs"`
}

// usable reports whether an error's words can be shown as they are.
func (d errorData) usable(message string) bool {
	return categories[d.Category] && stableCode.MatchString(d.Code) &&
		message != "" && len(message) <= maxMessage && utf8.ValidString(message)
}

// lost reports whether an agent that keeps its interrupts itself says that nothing waits for the decision.
func (p Profile) lost(raw json.RawMessage) bool {
	var data errorData
	return p.Interrupts && json.Unmarshal(raw, &data) == nil && data.Code == worker.CodeRunInterruptLost
}

// told reads the class that an agent of ours states itself, where it does.
func (p Profile) told(message string, raw json.RawMessage) (worker.Failure, bool) {
	var data errorData
	if !p.TrustErrors || json.Unmarshal(raw, &data) != nil || !data.usable(message) {
		return worker.Failure{}, false
	}
	return worker.Failure{
		Category: data.Category, Code: data.Code, Message: message, Retryable: data.Retryable,
		RetryAfterMs: min(max(data.RetryAfterMs, 0), maxRetryAfterMs),
	}, true
}
