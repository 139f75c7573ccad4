package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/worker"
)

func TestErrorClasses(t *testing.T) {
	table := []ErrorClass{
		{Code: 429, As: worker.Failure{Category: event.CategoryThrottled, Code: "slow_down", Message: "Slow down.", Retryable: true}},
		{Match: func(m string, _ json.RawMessage) bool { return strings.Contains(m, "quota") }, As: worker.Failure{Category: event.CategoryCapacity, Code: "quota", Message: "No quota."}},
	}
	const secret = "secret /srv/path"
	for name, tc := range map[string]struct {
		trust bool
		err   error
		want  worker.Failure // without its cause
	}{
		"by code":    {err: &RPCError{Code: 429, Message: secret}, want: table[0].As},
		"by message": {err: &RPCError{Code: -1, Message: "quota " + secret}, want: table[1].As},
		"wrapped":    {err: fmt.Errorf("failed: %w", &RPCError{Code: 429}), want: table[0].As},
		"login":      {err: &RPCError{Code: -32000, Message: secret}, want: protocolErrors[0].As},
		"session":    {err: &RPCError{Code: -32002, Message: secret}, want: protocolErrors[1].As},
		"parameters": {err: &RPCError{Code: -32602, Message: secret}, want: refused},
		"internal":   {err: &RPCError{Code: -32603, Message: secret}, want: worker.Failure{Category: event.CategoryInternal, Code: "harness_failed", Message: "The harness failed."}},
		"other":      {err: errors.New(secret), want: worker.Failure{Category: event.CategoryInternal, Code: "harness_failed", Message: "The harness failed."}},
		"closed":     {err: fmt.Errorf("%s: %w", secret, errClosed), want: connectionErrors[1].as},
		"violation":  {err: fmt.Errorf("%s: %w", secret, errViolation), want: connectionErrors[0].as},
		"timeout":    {err: context.DeadlineExceeded, want: connectionErrors[2].as},
		"too long":   {err: errTooLong, want: connectionErrors[3].as},
		"told, but not trusted": {
			err:  &RPCError{Code: -32603, Message: secret, Data: json.RawMessage(`{"category":"timeout","code":"x"}`)},
			want: worker.Failure{Category: event.CategoryInternal, Code: "harness_failed", Message: "The harness failed."},
		},
		"told": {
			trust: true,
			err:   &RPCError{Code: -32603, Message: "Safe.", Data: json.RawMessage(`{"category":"throttled","code":"model_throttled","retryable":true,"retryAfterMs":7000,"status":429}`)},
			want:  worker.Failure{Category: event.CategoryThrottled, Code: "model_throttled", Message: "Safe.", Retryable: true, RetryAfterMs: 7000},
		},
		"told to wait for ever": {
			trust: true,
			err:   &RPCError{Message: "Safe.", Data: json.RawMessage(`{"category":"throttled","code":"x","retryAfterMs":99999999999}`)},
			want:  worker.Failure{Category: event.CategoryThrottled, Code: "x", Message: "Safe.", RetryAfterMs: maxRetryAfterMs},
		},
		"told an unknown category": {
			trust: true,
			err:   &RPCError{Code: 429, Message: secret, Data: json.RawMessage(`{"category":"bad mood","code":"x"}`)},
			want:  table[0].As,
		},
		"told a code that is none": {
			trust: true,
			err:   &RPCError{Code: 429, Message: secret, Data: json.RawMessage(`{"category":"timeout","code":"/srv/path"}`)},
			want:  table[0].As,
		},
		"told without words": {
			trust: true,
			err:   &RPCError{Code: 429, Data: json.RawMessage(`{"category":"timeout","code":"x"}`)},
			want:  table[0].As,
		},
	} {
		p := Profile{Errors: table, TrustErrors: tc.trust}
		got := *p.classify(tc.err)
		if !errors.Is(tc.err, got.Cause) && got.Cause == nil {
			t.Errorf("%s: the cause is lost", name)
		}
		got.Cause = nil
		if got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
		if strings.Contains(got.Message, "secret") {
			t.Errorf("%s: leaks: %s", name, got.Message)
		}
	}
}
