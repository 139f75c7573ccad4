package resolvers

import (
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/graph/model"
)

// refusalModel makes a result of an error that some union has one for; nil otherwise. The caller asks whether its union
// has it.
func refusalModel(err error) any {
	p, ok := problem.As(err)
	if !ok || len(p.Field) > 0 {
		return nil
	}
	code := string(p.Code)
	switch p.Code {
	case problem.SessionBusy:
		busy := model.SessionBusy{Code: code, Message: p.Message}
		if id, ok := p.Extra["activeRunId"].(string); ok {
			busy.ActiveRunID = optional(id)
		}
		return busy
	case problem.IdempotencyConflict:
		return model.IdempotencyConflict{Code: code, Message: p.Message}
	case problem.InterruptConflict:
		conflict := model.InterruptConflict{Code: code, Message: p.Message}
		if settled, ok := p.Extra["settled"].(string); ok {
			conflict.Status = optional(model.InterruptStatus(settled))
		}
		return conflict
	case problem.HarnessUnknown, problem.HarnessDisabled, problem.HarnessUnavailable, problem.CapabilityUnsupported:
		return model.HarnessRefused{Code: code, Message: p.Message}
	case problem.Capacity:
		full := model.CapacityExhausted{Code: code, Message: p.Message}
		if seconds, ok := p.Extra["retryAfter"].(int); ok {
			full.RetryAfterSeconds = optional(int64(seconds))
		}
		return full
	}
	return nil
}
